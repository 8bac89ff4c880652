"""Servers written in the languages that have a runtime of their own."""

import os
import shutil
import subprocess

from entry import PYTHON, Entry, client, once, talk, write
from web import Application

AIOHTTP = """\
from aiohttp import web
async def answer(request):
    body = await request.read()
    return web.Response(text=f"{request.path_qs} {len(body)} {body[:9]!r}\\n")
app = web.Application()
app.router.add_route("*", "/{all:.*}", answer)
web.run_app(app, port=@PORT@, print=None)
"""
TORNADO = """\
import asyncio, tornado.web, concurrent.futures
pool = concurrent.futures.ThreadPoolExecutor(2)
class Answer(tornado.web.RequestHandler):
    async def post(self):
        size = await asyncio.get_running_loop().run_in_executor(pool, len, self.request.body)
        self.write(f"{self.request.uri} {size}\\n")
async def main():
    tornado.web.Application([(".*", Answer)]).listen(@PORT@)
    await asyncio.Event().wait()
asyncio.run(main())
"""
TWISTED = """\
from twisted.internet import reactor, threads
from twisted.web import resource, server
class Answer(resource.Resource):
    isLeaf = True
    def render_POST(self, request):
        body = request.content.read()
        def done(size):
            request.write(request.uri + b" %d\\n" % size)
            request.finish()
        threads.deferToThread(len, body).addCallback(done)
        return server.NOT_DONE_YET
reactor.listenTCP(@PORT@, server.Site(Answer()))
reactor.run()
"""
ASGI = """\
async def app(scope, receive, send):
    if scope["type"] != "http":
        return
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            break
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
    await send({"type": "http.response.body", "body": scope["raw_path"] + b" %d\\n" % len(body)})
"""
PLACK = """\
sub { my $env = shift; my $body = ''; $env->{'psgi.input'}->read($body, $env->{CONTENT_LENGTH} || 0);
    [200, ['Content-Type' => 'text/plain'], ["$env->{PATH_INFO} $env->{QUERY_STRING} " . length($body) . "\\n"]] };
"""
MOJO = """\
use Mojolicious::Lite -signatures;
any '/*all' => sub ($c) { $c->render(text => $c->req->url->to_string . ' ' . length($c->req->body) . "\\n") };
app->secrets(['x']); app->start;
"""
RACK = """\
run lambda { |env| body = env['rack.input'].read
  [200, {'Content-Type' => 'text/plain'}, ["#{env['PATH_INFO']} #{env['QUERY_STRING']} #{body.size}\\n"]] }
"""
NODE = """\
const http = require('http'), crypto = require('crypto'), zlib = require('zlib');
http.createServer((request, response) => {
  let body = '';
  request.on('data', part => body += part);
  request.on('end', () => crypto.pbkdf2(body, 'salt', 100, 16, 'sha256', (_, key) =>
    zlib.gzip(body, (_, packed) => response.end(`${request.url} ${body.length} ${key.toString('hex')} ${packed.length}\\n`))));
}).listen(@PORT@, '0.0.0.0');
"""
PHP = "<?php echo $_SERVER['REQUEST_URI'], ' ', strlen(file_get_contents('php://input')), ' ', hash('sha256', $_SERVER['REQUEST_URI']), \"\\n\";\n"
JAVA = """\
import com.sun.net.httpserver.HttpServer;
import java.net.InetSocketAddress;
import java.util.concurrent.*;
public class app {
    public static void main(String[] words) throws Exception {
        ConcurrentHashMap<String, Integer> counts = new ConcurrentHashMap<>();
        HttpServer server = HttpServer.create(new InetSocketAddress("0.0.0.0", @PORT@), 64);
        server.createContext("/", exchange -> {
            int size = exchange.getRequestBody().readAllBytes().length;
            byte[] text = (exchange.getRequestURI() + " " + size + " " + counts.merge(exchange.getRequestURI().toString(), 1, Integer::sum) + "\\n").getBytes();
            exchange.sendResponseHeaders(200, text.length);
            exchange.getResponseBody().write(text);
            exchange.close();
        });
        server.setExecutor(Executors.newCachedThreadPool());
        server.start();
    }
}
"""
RUST = """\
use std::{collections::HashMap, io::{BufRead, BufReader, Write}, net::TcpListener, sync::{mpsc, Arc, Mutex}, thread};
fn main() {
    let counts: Arc<Mutex<HashMap<String, usize>>> = Default::default();
    let (give, take) = mpsc::channel::<(String, mpsc::Sender<usize>)>();
    let shared = counts.clone();
    thread::spawn(move || for (key, back) in take {
        let mut counts = shared.lock().unwrap();
        let count = counts.entry(key).or_insert(0);
        *count += 1;
        back.send(*count).unwrap();
    });
    let listener = TcpListener::bind("0.0.0.0:@PORT@").unwrap();
    for stream in listener.incoming() {
        let (mut stream, give) = (stream.unwrap(), give.clone());
        thread::spawn(move || {
            let reader = BufReader::new(stream.try_clone().unwrap());
            for line in reader.lines().flatten() {
                let (send, receive) = mpsc::channel();
                give.send((line.clone(), send)).unwrap();
                if writeln!(stream, "{} {}", line, receive.recv().unwrap()).is_err() { return; }
            }
        });
    }
}
"""


class Python(Application):
    kind, source = "python", "app.py"

    def command(self):
        return [PYTHON, self.site / "app.py"]


class Aiohttp(Python):
    name, code = "aiohttp", AIOHTTP
    packages, programs = ("python3-aiohttp",), ("/usr/lib/python3/dist-packages/aiohttp/__init__.py",)


class Tornado(Python):
    name, code = "tornado", TORNADO
    packages, programs = ("python3-tornado",), ("/usr/lib/python3/dist-packages/tornado/__init__.py",)


class Twisted(Python):
    name, code = "twisted", TWISTED
    packages, programs = ("python3-twisted",), ("/usr/lib/python3/dist-packages/twisted/__init__.py",)


class Uvicorn(Python):
    name, code = "uvicorn", ASGI
    packages, programs = ("uvicorn",), ("/usr/bin/uvicorn",)

    def command(self):
        return ["/usr/bin/uvicorn", "--host", "0.0.0.0", "--port", self.port, "--app-dir", self.site, "app:app"]


class Starman(Application):
    name, kind, source, code = "starman", "perl", "app.psgi", PLACK
    packages, programs = ("starman",), ("/usr/bin/starman",)

    def command(self):
        return ["/usr/bin/starman", "--workers", "2", "--port", self.port, self.site / "app.psgi"]


class Plackup(Application):
    name, kind, source, code = "plackup", "perl", "app.psgi", PLACK
    packages, programs = ("libplack-perl",), ("/usr/bin/plackup",)

    def command(self):
        return ["/usr/bin/plackup", "--port", self.port, self.site / "app.psgi"]


class Mojolicious(Application):
    name, kind, source, code = "mojolicious", "perl", "app.pl", MOJO
    packages, programs = ("libmojolicious-perl",), ("/usr/share/perl5/Mojolicious.pm",)

    def command(self):
        return ["/usr/bin/perl", self.site / "app.pl", "daemon", "-m", "production", "-l", f"http://0.0.0.0:{self.port}"]


class MojoPrefork(Mojolicious):
    name = "mojolicious-prefork"

    def command(self):
        return ["/usr/bin/perl", self.site / "app.pl", "prefork", "-m", "production", "-w", "2", "-P", self.site / "pid",
                "-l", f"http://0.0.0.0:{self.port}"]


class Puma(Application):
    name, kind, source, code = "puma", "ruby", "config.ru", RACK
    packages, programs = ("puma",), ("/usr/bin/puma",)
    words = ()

    def command(self):
        return ["/usr/bin/puma", "-C", "-", "-e", "production", "-t", "3:3", *self.words, "-b", f"tcp://0.0.0.0:{self.port}",
                self.site / "config.ru"]


class PumaWorkers(Puma):
    name, words = "puma-workers", ("-w", "2")


class Unicorn(Puma):
    name = "unicorn"
    packages, programs = ("unicorn",), ("/usr/bin/unicorn",)

    def command(self):
        return ["/usr/bin/unicorn", "-E", "none", "-l", f"0.0.0.0:{self.port}", self.site / "config.ru"]


class Webrick(Application):
    name, kind, source = "webrick", "ruby", "app.rb"
    code = """\
require 'webrick'
server = WEBrick::HTTPServer.new(Port: @PORT@, BindAddress: '0.0.0.0', AccessLog: [])
server.mount_proc('/') { |request, response| response.body = "#{request.unparsed_uri} #{request.body.size}\\n" }
server.start
"""
    packages, programs = ("ruby-webrick",), ("/usr/bin/ruby",)

    def command(self):
        return ["/usr/bin/ruby", self.site / "app.rb"]


class Node(Application):
    name, kind, source, code = "node-threadpool", "node", "app.js", NODE
    programs = ("/usr/bin/node",)
    packages = ("nodejs",)

    def command(self):
        return ["/usr/bin/node", self.site / "app.js"]


class NodeCluster(Node):
    name = "node-cluster"
    code = ("const cluster = require('cluster');\nif (cluster.isPrimary) { cluster.fork(); cluster.fork(); } else {\n" + NODE + "}\n")


class PhpBuiltIn(Application):
    name, kind, source, code = "php-built-in", "php", "app.php", PHP
    packages, programs = ("php8.2-cli",), ("/usr/bin/php8.2",)

    def prepare(self):
        super().prepare()
        self.environment = {"PHP_CLI_SERVER_WORKERS": "2"}

    def command(self):
        return ["/usr/bin/php8.2", "-S", f"0.0.0.0:{self.port}", self.site / "app.php"]


class Java(Application):
    name, kind, source, code = "java", "java", "app.java", JAVA
    packages, programs = ("default-jdk-headless",), ("/usr/bin/javac",)

    def prepare(self):
        super().prepare()
        once("/usr/bin/javac", "-d", self.site, self.site / "app.java")

    def command(self):
        return ["/usr/bin/java", "-Xmx128m", "-cp", self.site, "app"]


class Rust(Entry):
    name, kind = "rust", "rust"
    packages = ("rustc",)
    programs = (shutil.which("rustc") or "/usr/bin/rustc",)

    def prepare(self):
        write(self.site / "app.rs", RUST.replace("@PORT@", str(self.port)))
        once(self.programs[0], "-O", "-o", self.site / "app", self.site / "app.rs")

    def command(self):
        return [self.site / "app"]

    def check(self, address, number):
        return talk(address, *((f"key {number} {turn % 2}\n", r"\n") for turn in range(6)))


GRPC_PROTO = """\
syntax = "proto3";
package crane;
service Counter { rpc Add (Amount) returns (Amount); rpc Each (Amount) returns (stream Amount); }
message Amount { string key = 1; int64 value = 2; }
"""
GRPC_SERVER = """\
#include <grpcpp/grpcpp.h>
#include <map>
#include <mutex>
#include "counter.grpc.pb.h"
struct Service final : crane::Counter::Service {
    std::mutex mutex;
    std::map<std::string, long> counts;
    grpc::Status Add(grpc::ServerContext*, const crane::Amount* in, crane::Amount* out) override {
        std::lock_guard lock(mutex);
        out->set_key(in->key());
        out->set_value(counts[in->key()] += in->value());
        return grpc::Status::OK;
    }
    grpc::Status Each(grpc::ServerContext*, const crane::Amount* in, grpc::ServerWriter<crane::Amount>* out) override {
        for (long n = 0; n < in->value(); n++) { crane::Amount each; each.set_key(in->key()); each.set_value(n); out->Write(each); }
        return grpc::Status::OK;
    }
};
int main(int, char** words) {
    Service service;
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort(std::string("0.0.0.0:") + words[1], grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&service);
    auto server = builder.BuildAndStart();
    if (!server || port == 0) return 1;
    server->Wait();
}
"""
GRPC_CLIENT = """\
#include <grpcpp/grpcpp.h>
#include <iostream>
#include "counter.grpc.pb.h"
int main(int, char** words) {
    auto stub = crane::Counter::NewStub(grpc::CreateChannel(words[1], grpc::InsecureChannelCredentials()));
    crane::Amount in, out;
    in.set_key(words[2]);
    in.set_value(5);
    for (int n = 0; n < 5; n++) {
        grpc::ClientContext context;
        auto status = stub->Add(&context, in, &out);
        if (!status.ok()) { std::cerr << status.error_message() << "\\n"; return 1; }
        std::cout << out.key() << " " << out.value() << "\\n";
    }
    grpc::ClientContext context;
    auto reader = stub->Each(&context, in);
    while (reader->Read(&out)) std::cout << out.value() << " ";
    return reader->Finish().ok() ? 0 : 1;
}
"""


class Grpc(Entry):
    """Built once: its headers take a minute."""

    name, kind = "grpc", "grpc (C++)"
    packages = ("libgrpc++-dev", "libprotobuf-dev", "protobuf-compiler-grpc", "pkg-config")
    programs = ("/usr/bin/grpc_cpp_plugin",)

    def prepare(self):
        kept = self.site.parent / "crane-matrix-build" / "grpc"
        if not (kept / "client").exists():
            kept.mkdir(parents=True, exist_ok=True)
            write(kept / "counter.proto", GRPC_PROTO)
            write(kept / "server.cpp", GRPC_SERVER)
            write(kept / "client.cpp", GRPC_CLIENT)
            script = """cd "$1" && protoc -I. --cpp_out=. --grpc_out=. --plugin=protoc-gen-grpc=/usr/bin/grpc_cpp_plugin counter.proto
                for name in server client; do g++ -std=c++17 -o $name $name.cpp counter.pb.cc counter.grpc.pb.cc \
                    $(pkg-config --cflags --libs grpc++ protobuf) || exit 1; done"""
            subprocess.run(["/bin/bash", "-ec", script, "sh", str(kept)], check=True, timeout=600)
        for name in ("server", "client"):
            shutil.copy(kept / name, self.site / name)
            os.chmod(self.site / name, 0o755)

    def command(self):
        return [self.site / "server", self.port]

    def check(self, address, number):
        return client(self.site / "client", f"{address[0]}:{address[1]}", f"key{number}")


ERLANG = """\
-module(app).
-export([main/1]).
main(Port) ->
    {ok, Listener} = gen_tcp:listen(Port, [list, {packet, line}, {active, false}, {reuseaddr, true}]),
    ets:new(counts, [set, public, named_table]),
    accept(Listener).
accept(Listener) ->
    {ok, Socket} = gen_tcp:accept(Listener),
    Pid = spawn(fun() -> receive go -> serve(Socket) end end),
    gen_tcp:controlling_process(Socket, Pid),
    Pid ! go,
    accept(Listener).
serve(Socket) ->
    case gen_tcp:recv(Socket, 0) of
        {ok, Line} -> Count = ets:update_counter(counts, Line, 1, {Line, 0}),
            gen_tcp:send(Socket, io_lib:format("~p ~s", [Count, Line])), serve(Socket);
        _ -> gen_tcp:close(Socket)
    end.
"""


class Erlang(Rust):
    name, kind = "erlang", "erlang"
    packages, programs = ("erlang-base",), ("/usr/bin/erlc",)
    needs = ""
    words = ()

    def prepare(self):
        write(self.site / "app.erl", ERLANG)
        once("/usr/bin/erlc", "-o", self.site, self.site / "app.erl")

    def command(self):
        return ["/usr/bin/erl", *self.words, "-noshell", "-noinput", "-pa", self.site, "-eval", f"app:main({self.port})."]


class ErlangOne(Erlang):
    name, words = "erlang-one-scheduler", ("+S", "1:1")
