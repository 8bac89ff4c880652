"""Servers made with libraries that bring threads and event loops of their own, and some of Java's."""

from entry import PYTHON, Entry, client, write
from tongues import Compiled

ASIO = """\
#include <boost/asio.hpp>
#include <iostream>
#include <memory>
#include <mutex>
#include <map>
#include <thread>
namespace asio = boost::asio;
std::mutex lock;
std::map<std::string, int> counts;
struct Session : std::enable_shared_from_this<Session> {
    asio::ip::tcp::socket socket;
    asio::strand<asio::any_io_executor> strand;
    asio::streambuf input;
    asio::steady_timer timer;
    std::string output;
    explicit Session(asio::ip::tcp::socket s) : socket(std::move(s)), strand(asio::make_strand(socket.get_executor())), timer(socket.get_executor()) {}
    void read() {
        asio::async_read_until(socket, input, '\\n', asio::bind_executor(strand, [self = shared_from_this()](auto error, size_t) {
            if (error) return;
            std::istream in(&self->input);
            std::string line;
            std::getline(in, line);
            { std::lock_guard guard(lock); self->output = line + " " + std::to_string(++counts[line]) + "\\n"; }
            self->timer.expires_after(std::chrono::milliseconds(1));
            self->timer.async_wait(asio::bind_executor(self->strand, [self](auto) {
                asio::async_write(self->socket, asio::buffer(self->output), asio::bind_executor(self->strand, [self](auto wrong, size_t) { if (!wrong) self->read(); }));
            }));
        }));
    }
};
void accept(asio::ip::tcp::acceptor& acceptor) {
    acceptor.async_accept([&](auto error, asio::ip::tcp::socket socket) {
        if (!error) std::make_shared<Session>(std::move(socket))->read();
        accept(acceptor);
    });
}
int main() {
    asio::io_context context;
    asio::ip::tcp::acceptor acceptor(context, {asio::ip::tcp::v4(), @PORT@});
    accept(acceptor);
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) threads.emplace_back([&] { context.run(); });
    for (auto& thread : threads) thread.join();
}
"""
UV = """\
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>
struct work { uv_work_t request; uv_write_t write; uv_stream_t* stream; char* text; size_t bytes; };
static void made(uv_handle_t* handle, size_t size, uv_buf_t* buffer) { (void)handle; *buffer = uv_buf_init(malloc(size), size); }
static void closed(uv_handle_t* handle) { free(handle); }
static void upper(uv_work_t* request) {
    struct work* work = request->data;
    for (size_t i = 0; i < work->bytes; i++) if (work->text[i] >= 'a' && work->text[i] <= 'z') work->text[i] -= 32;
}
static void written(uv_write_t* write, int status) { (void)status; struct work* work = write->data; free(work->text); free(work); }
static void after(uv_work_t* request, int status) {
    (void)status;
    struct work* work = request->data;
    uv_buf_t buffer = uv_buf_init(work->text, work->bytes);
    work->write.data = work;
    uv_write(&work->write, work->stream, &buffer, 1, written);
}
static void got(uv_stream_t* stream, ssize_t bytes, const uv_buf_t* buffer) {
    if (bytes <= 0) { free(buffer->base); if (bytes < 0) uv_close((uv_handle_t*)stream, closed); return; }
    struct work* work = malloc(sizeof *work);
    *work = (struct work){.stream = stream, .text = buffer->base, .bytes = bytes};
    work->request.data = work;
    uv_queue_work(stream->loop, &work->request, upper, after);
}
static void come(uv_stream_t* server, int status) {
    (void)status;
    uv_tcp_t* client = malloc(sizeof *client);
    uv_tcp_init(server->loop, client);
    if (uv_accept(server, (uv_stream_t*)client) == 0) uv_read_start((uv_stream_t*)client, made, got);
    else uv_close((uv_handle_t*)client, closed);
}
int main(void) {
    uv_tcp_t server;
    struct sockaddr_in address;
    uv_tcp_init(uv_default_loop(), &server);
    uv_ip4_addr("0.0.0.0", @PORT@, &address);
    uv_tcp_bind(&server, (struct sockaddr*)&address, 0);
    uv_listen((uv_stream_t*)&server, 64, come);
    return uv_run(uv_default_loop(), UV_RUN_DEFAULT);
}
"""
QT = """\
#include <QCoreApplication>
#include <QMutex>
#include <QTcpServer>
#include <QTcpSocket>
#include <QThread>
static QMutex lock;
static QMap<QString, int> counts;
struct Session : QThread {
    qintptr handle;
    explicit Session(qintptr h) : handle(h) {}
    void run() override {
        QTcpSocket socket;
        socket.setSocketDescriptor(handle);
        while (socket.waitForReadyRead(-1)) {
            while (socket.canReadLine()) {
                const QString line = QString(socket.readLine()).trimmed();
                int count;
                { QMutexLocker guard(&lock); count = ++counts[line]; }
                socket.write(QString("%1 %2\\n").arg(line).arg(count).toUtf8());
                socket.waitForBytesWritten();
            }
        }
    }
};
struct Server : QTcpServer {
    void incomingConnection(qintptr handle) override {
        auto* session = new Session(handle);
        QObject::connect(session, &QThread::finished, session, &QObject::deleteLater);
        session->start();
    }
};
int main(int argc, char** argv) {
    QCoreApplication application(argc, argv);
    Server server;
    if (!server.listen(QHostAddress::AnyIPv4, @PORT@)) return 1;
    return application.exec();
}
"""
NIM = """\
import asyncnet, asyncdispatch, tables, strutils
var counts = initTable[string, int]()
proc serve(client: AsyncSocket) {.async.} =
  while true:
    let line = await client.recvLine()
    if line.len == 0: break
    counts[line] = counts.getOrDefault(line) + 1
    await client.send(line & " " & $counts[line] & "\\n")
  client.close()
proc main() {.async.} =
  var server = newAsyncSocket()
  server.setSockOpt(OptReuseAddr, true)
  server.bindAddr(Port(@PORT@), "0.0.0.0")
  server.listen()
  while true:
    let client = await server.accept()
    asyncCheck serve(client)
asyncCheck main()
runForever()
"""
D = """\
import std.socket, std.conv, std.string, core.thread, core.sync.mutex, core.memory;
__gshared int[string] counts;
__gshared Mutex lock;
void serve(Socket client) {
    char[] rest;
    char[4096] part;
    for (;;) {
        auto got = client.receive(part);
        if (got <= 0) break;
        rest ~= part[0 .. got];
        for (auto at = rest.indexOf('\\n'); at >= 0; at = rest.indexOf('\\n')) {
            string line = rest[0 .. at].idup;
            rest = rest[at + 1 .. $].dup;
            int count;
            synchronized (lock) { count = ++counts[line]; }
            GC.collect();
            client.send(line ~ " " ~ to!string(count) ~ "\\n");
        }
    }
    client.close();
}
void begin(Socket client) {
    new Thread({ serve(client); }).start();
}
void main() {
    lock = new Mutex;
    auto listener = new TcpSocket;
    listener.setOption(SocketOptionLevel.SOCKET, SocketOption.REUSEADDR, true);
    listener.bind(new InternetAddress("0.0.0.0", @PORT@));
    listener.listen(64);
    for (;;) {
        begin(listener.accept());
    }
}
"""
LWT = """\
open Lwt.Infix
let counts = Hashtbl.create 16
let rec serve input output =
  Lwt_io.read_line_opt input >>= function
  | None -> Lwt_io.close output
  | Some line ->
    let count = 1 + (try Hashtbl.find counts line with Not_found -> 0) in
    Hashtbl.replace counts line count;
    Lwt_preemptive.detach (fun () -> Gc.full_major (); Printf.sprintf "%s %d" line count) () >>= fun text ->
    Lwt_io.write_line output text >>= fun () -> serve input output
let () =
  Lwt_main.run (
    Lwt_io.establish_server_with_client_address ~backlog:64 (Unix.ADDR_INET (Unix.inet_addr_any, @PORT@))
      (fun _ (input, output) -> serve input output) >>= fun _ -> fst (Lwt.wait ()))
"""
ZMQ = """\
import threading, zmq
context = zmq.Context(io_threads=2)
front = context.socket(zmq.ROUTER)
front.bind("tcp://0.0.0.0:@PORT@")
back = context.socket(zmq.DEALER)
back.bind("inproc://work")
def work():
    socket = context.socket(zmq.REP)
    socket.connect("inproc://work")
    while True:
        word = socket.recv()
        socket.send(word.upper() + b" %d" % len(word))
for _ in range(3):
    threading.Thread(target=work, daemon=True).start()
zmq.proxy(front, back)
"""
ZMQ_CLIENT = """\
import sys, zmq
socket = zmq.Context().socket(zmq.REQ)
socket.setsockopt(zmq.RCVTIMEO, 20000)
socket.setsockopt(zmq.LINGER, 0)
socket.connect(sys.argv[1])
for turn in range(5):
    socket.send(b"word %s %d" % (sys.argv[2].encode(), turn))
    print(socket.recv().decode())
"""


class Asio(Compiled):
    name, kind, source, code = "asio", "c++", "app.cpp", ASIO
    packages, programs = ("libboost-dev", "g++"), ("/usr/include/boost/asio.hpp", "/usr/bin/g++")
    words = ("g++", "-std=c++17", "-O1", "app.cpp", "-o", "app", "-pthread")


class Uv(Compiled):
    name, kind, source, code = "libuv", "c", "app.c", UV
    packages, programs = ("libuv1-dev", "gcc"), ("/usr/include/uv.h", "/usr/bin/gcc")
    words = ("gcc", "-O1", "app.c", "-o", "app", "-luv")


class Qt(Compiled):
    name, kind, source, code = "qt", "c++", "app.cpp", QT
    packages, programs = ("qtbase5-dev", "g++"), ("/usr/include/x86_64-linux-gnu/qt5/QtNetwork/QTcpServer", "/usr/bin/g++")
    words = ("g++", "-fPIC", "-I/usr/include/x86_64-linux-gnu/qt5", "-I/usr/include/x86_64-linux-gnu/qt5/QtCore",
             "-I/usr/include/x86_64-linux-gnu/qt5/QtNetwork", "app.cpp", "-o", "app", "-lQt5Network", "-lQt5Core")


class Nim(Compiled):
    name, kind, source, code = "nim", "nim", "app.nim", NIM
    packages, programs = ("nim",), ("/usr/bin/nim",)
    words = ("HOME=$PWD", "nim", "c", "--hints:off", "--warnings:off", "-d:release", "app.nim")


class Dlang(Compiled):
    name, kind, source, code = "d", "d", "app.d", D
    packages, programs = ("gdc",), ("/usr/bin/gdc",)
    words = ("gdc", "-O1", "app.d", "-o", "app")


class Lwt(Compiled):
    name, kind, source, code = "lwt", "ocaml", "app.ml", LWT
    packages, programs = ("ocaml-findlib", "liblwt-ocaml-dev"), ("/usr/bin/ocamlfind", "/usr/lib/ocaml/lwt/unix")
    words = ("ocamlfind", "ocamlopt", "-thread", "-package", "threads.posix,lwt.unix", "-linkpkg", "app.ml", "-o", "app")


class Zmq(Entry):
    name, kind = "zeromq", "messages"
    packages, programs = ("python3-zmq",), ("/usr/lib/python3/dist-packages/zmq/__init__.py",)

    def prepare(self):
        write(self.site / "app.py", ZMQ.replace("@PORT@", str(self.port)))
        write(self.site / "client.py", ZMQ_CLIENT)

    def command(self):
        return [PYTHON, self.site / "app.py"]

    def check(self, address, number):
        return client(PYTHON, self.site / "client.py", f"tcp://{address[0]}:{address[1]}", number)


class Derby(Entry):
    """Tables in a database that one client makes; SQL by Derby's own ij."""

    name, kind = "derby", "sql"
    packages, programs = ("derby-tools", "default-jre-headless"), ("/usr/share/java/derbynet.jar", "/usr/bin/java")
    jars = ":".join(f"/usr/share/java/{name}.jar" for name in ("derby", "derbynet", "derbytools", "derbyclient", "derbyshared"))
    volatile = r"ij version.*|^ij.*CONNECTION.*"
    crowd = 8

    def command(self):
        return ["/usr/bin/java", "-Xmx128m", f"-Dderby.system.home={self.site}", "-cp", self.jars, "org.apache.derby.drda.NetworkServerControl",
                "start", "-h", "0.0.0.0", "-p", self.port, "-noSecurityManager"]

    def check(self, address, number):
        return client("/usr/bin/java", "-cp", self.jars, "org.apache.derby.tools.ij",
                      data=f"connect 'jdbc:derby://{address[0]}:{address[1]}/all{number};create=true';\ncreate table words (id int primary key, body varchar(40));\n"
                      f"insert into words values (1, 'some {number}'), (2, 'other');\nupdate words set body = 'third' where id = 2;\nselect * from words order by id;\nexit;\n")


class Xvfb(Entry):
    name, kind = "xvfb", "display"
    packages, programs = ("xvfb", "x11-utils"), ("/usr/bin/Xvfb", "/usr/bin/xprop")
    display = 0

    @classmethod
    def fresh_port(cls):
        cls.display = 40 + Entry.fresh_port() % 50
        return 6000 + cls.display

    def command(self):
        return ["/usr/bin/Xvfb", f":{self.port - 6000}", "-screen", "0", "320x200x16", "-listen", "tcp", "-nolisten", "unix", "-ac", "-noreset"]

    def check(self, address, number):
        show = f"{address[0]}:{address[1] - 6000}"
        client("/usr/bin/xprop", "-display", show, "-root", "-f", f"WORD{number}", "8s", "-set", f"WORD{number}", f"value {number}")
        return client("/usr/bin/xprop", "-display", show, "-root", f"WORD{number}")
