"""Servers in languages whose runtimes have threads, collectors or timers of their own kind."""

import pathlib

from entry import Entry, once, talk, write
from web import Application

LISP = """\
(require :asdf)
(asdf:load-system :hunchentoot)
(setf (hunchentoot:acceptor-access-log-destination (make-instance 'hunchentoot:easy-acceptor)) nil)
(defvar *counts* (make-hash-table :test 'equal :synchronized t))
(hunchentoot:define-easy-handler (all :uri (constantly t)) ()
  (setf (hunchentoot:content-type*) "text/plain")
  (format nil "~a ~a ~a~%" (hunchentoot:request-uri*) (length (hunchentoot:raw-post-data :force-binary t))
          (incf (gethash (hunchentoot:script-name*) *counts* 0))))
(hunchentoot:start (make-instance 'hunchentoot:easy-acceptor :port @PORT@ :access-log-destination nil))
(loop (sleep 3600))
"""
RACKET = """\
#lang racket/base
(require racket/tcp)
(define counts (make-hash))
(define listener (tcp-listen @PORT@ 64 #t "0.0.0.0"))
(let loop ()
  (define-values (in out) (tcp-accept listener))
  (thread (lambda ()
    (let next ()
      (define line (read-line in))
      (unless (eof-object? line)
        (hash-update! counts line add1 0)
        (fprintf out "~a ~a\\n" line (hash-ref counts line))
        (flush-output out)
        (next)))
    (close-input-port in)
    (close-output-port out)))
  (loop))
"""
MONO = """\
using System;
using System.Collections.Concurrent;
using System.IO;
using System.Net;
using System.Net.Sockets;
using System.Threading.Tasks;
class App {
    static ConcurrentDictionary<string, int> counts = new ConcurrentDictionary<string, int>();
    static async Task Serve(TcpClient client) {
        using (client) using (var reader = new StreamReader(client.GetStream())) using (var writer = new StreamWriter(client.GetStream())) {
            for (string line; (line = await reader.ReadLineAsync()) != null;) {
                int count = await Task.Run(() => counts.AddOrUpdate(line, 1, (_, n) => n + 1));
                await writer.WriteAsync(line + " " + count + "\\n");
                await writer.FlushAsync();
            }
        }
    }
    static void Main() {
        var listener = new TcpListener(IPAddress.Any, @PORT@);
        listener.Start();
        while (true) { var task = Serve(listener.AcceptTcpClient()); }
    }
}
"""
R = """\
library(httpuv)
counts <- new.env()
runServer("0.0.0.0", @PORT@, list(call = function(request) {
  path <- request$PATH_INFO
  counts[[path]] <- (if (is.null(counts[[path]])) 0 else counts[[path]]) + 1
  list(status = 200L, headers = list("Content-Type" = "text/plain"),
       body = paste(path, request$QUERY_STRING, length(request$rook.input$read()), counts[[path]], "\\n"))
}))
"""
TCL = """\
proc serve {channel} {
    global counts
    if {[gets $channel line] < 0} { if {[eof $channel]} { close $channel }; return }
    incr counts($line)
    puts $channel "$line $counts($line)"
}
proc accept {channel address port} {
    fconfigure $channel -blocking 0 -buffering line
    fileevent $channel readable [list serve $channel]
}
socket -server accept @PORT@
vwait forever
"""
GUILE = """\
(use-modules (web server) (web request) (web uri) (rnrs bytevectors))
(define counts (make-hash-table))
(run-server
 (lambda (request body)
   (let ((path (uri-path (request-uri request))))
     (hash-set! counts path (+ 1 (hash-ref counts path 0)))
     (values '((content-type . (text/plain)))
             (format #f "~a ~a ~a\\n" path (if body (bytevector-length body) 0) (hash-ref counts path)))))
 'http '(#:port @PORT@ #:addr 0))
"""
ELIXIR = """\
{:ok, counts} = Agent.start_link(fn -> %{} end)
{:ok, listener} = :gen_tcp.listen(@PORT@, [:binary, packet: :line, active: false, reuseaddr: true, backlog: 64])
serve = fn serve, socket ->
  case :gen_tcp.recv(socket, 0) do
    {:ok, line} ->
      key = String.trim(line)
      count = Agent.get_and_update(counts, fn all -> all = Map.update(all, key, 1, &(&1 + 1)); {all[key], all} end)
      :gen_tcp.send(socket, "#{key} #{count}\\n")
      serve.(serve, socket)
    _ -> :gen_tcp.close(socket)
  end
end
loop = fn loop ->
  {:ok, socket} = :gen_tcp.accept(listener)
  {:ok, pid} = Task.start(fn -> receive do :go -> serve.(serve, socket) end end)
  :gen_tcp.controlling_process(socket, pid)
  send(pid, :go)
  loop.(loop)
end
loop.(loop)
"""
PROLOG = """\
:- use_module(library(http/thread_httpd)).
:- use_module(library(http/http_dispatch)).
:- use_module(library(http/http_client)).
:- use_module(library(http/http_header)).
:- http_handler(/, answer, [prefix]).
:- dynamic count/2.
answer(Request) :-
    memberchk(path(Path), Request),
    http_read_data(Request, Body, [to(string)]), string_length(Body, Length),
    with_mutex(counts, ((retract(count(Path, Old)) -> true ; Old = 0), New is Old + 1, assertz(count(Path, New)))),
    format("Content-type: text/plain~n~n~w ~w ~w~n", [Path, Length, New]).
:- initialization((http_server(http_dispatch, [port('0.0.0.0':@PORT@), workers(3)]), thread_get_message(_)), main).
"""
HASKELL = """\
import Control.Concurrent
import Control.Monad
import qualified Data.Map.Strict as M
import Network.Socket
import System.IO
main :: IO ()
main = do
  counts <- newMVar M.empty
  listener <- socket AF_INET Stream defaultProtocol
  setSocketOption listener ReuseAddr 1
  bind listener (SockAddrInet @PORT@ 0)
  listen listener 64
  forever $ do
    (connection, _) <- accept listener
    handle <- socketToHandle connection ReadWriteMode
    hSetBuffering handle LineBuffering
    forkIO $ serve handle counts
 where
  serve handle counts = do
    end <- hIsEOF handle
    if end then hClose handle else do
      line <- hGetLine handle
      count <- modifyMVar counts $ \\all -> let new = M.insertWith (+) line (1 :: Int) all in return (new, new M.! line)
      hPutStrLn handle (line ++ " " ++ show count)
      serve handle counts
"""
OCAML = """\
let counts = Hashtbl.create 16
let lock = Mutex.create ()
let serve connection =
  let input = Unix.in_channel_of_descr connection and output = Unix.out_channel_of_descr connection in
  (try while true do
    let line = input_line input in
    Mutex.lock lock;
    let count = 1 + (try Hashtbl.find counts line with Not_found -> 0) in
    Hashtbl.replace counts line count;
    Mutex.unlock lock;
    Printf.fprintf output "%s %d\\n%!" line count
  done with End_of_file -> ());
  close_out output
let () =
  let listener = Unix.socket Unix.PF_INET Unix.SOCK_STREAM 0 in
  Unix.setsockopt listener Unix.SO_REUSEADDR true;
  Unix.bind listener (Unix.ADDR_INET (Unix.inet_addr_any, @PORT@));
  Unix.listen listener 64;
  while true do
    let connection, _ = Unix.accept listener in
    ignore (Thread.create serve connection)
  done
"""
ADA = """\
with Ada.Streams; use Ada.Streams;
with GNAT.Sockets; use GNAT.Sockets;
procedure App is
   task type Session is entry Start (Given : Socket_Type); end Session;
   type Session_Access is access Session;
   task body Session is
      Socket : Socket_Type;
      Data : Stream_Element_Array (1 .. 4096);
      Last : Stream_Element_Offset;
   begin
      accept Start (Given : Socket_Type) do Socket := Given; end Start;
      loop
         Receive_Socket (Socket, Data, Last);
         exit when Last < Data'First;
         Send_Socket (Socket, Data (1 .. Last), Last);
      end loop;
      Close_Socket (Socket);
   end Session;
   Listener, Client : Socket_Type;
   Address : Sock_Addr_Type := (Family_Inet, Any_Inet_Addr, @PORT@);
   Next : Session_Access;
begin
   Create_Socket (Listener);
   Set_Socket_Option (Listener, Socket_Level, (Reuse_Address, True));
   Bind_Socket (Listener, Address);
   Listen_Socket (Listener, 64);
   loop
      Accept_Socket (Listener, Client, Address);
      Next := new Session;
      Next.Start (Client);
   end loop;
end App;
"""


class Lines(Entry):
    """Answers each line with it and how often it has come."""

    source, code = "app", ""

    def prepare(self):
        write(self.site / self.source, self.code.replace("@PORT@", str(self.port)))

    def check(self, address, number):
        return talk(address, *((f"key {number} {turn % 2}\n", r"\n") for turn in range(6)))


class Hunchentoot(Application):
    name, kind, source, code = "hunchentoot", "lisp", "app.lisp", LISP
    packages, programs = ("sbcl", "cl-hunchentoot"), ("/usr/bin/sbcl", "/usr/share/common-lisp/source/hunchentoot/hunchentoot.asd")

    def command(self):
        self.environment = {"HOME": str(self.site)}
        return ["/usr/bin/sbcl", "--non-interactive", "--load", self.site / "app.lisp"]

    def prepare(self):
        super().prepare()
        # Compiled once: that takes longer than anybody waits for a server.
        once("env", f"HOME={self.site}", "/usr/bin/sbcl", "--non-interactive", "--eval", "(require :asdf)", "--eval", "(asdf:load-system :hunchentoot)")


class Racket(Lines):
    name, kind, source, code = "racket", "scheme", "app.rkt", RACKET
    packages, programs = ("racket",), ("/usr/bin/racket",)

    def command(self):
        return ["/usr/bin/racket", self.site / "app.rkt"]


class Mono(Lines):
    name, kind, source, code = "mono", "c#", "app.cs", MONO
    packages, programs = ("mono-mcs", "mono-runtime"), ("/usr/bin/mcs", "/usr/bin/mono")

    def prepare(self):
        super().prepare()
        once("/usr/bin/mcs", f"-out:{self.site}/app.exe", self.site / "app.cs")

    def command(self):
        return ["/usr/bin/mono", self.site / "app.exe"]


class Httpuv(Application):
    name, kind, source, code = "httpuv", "r", "app.R", R
    packages, programs = ("r-base-core", "r-cran-httpuv"), ("/usr/bin/Rscript", "/usr/lib/R/site-library/httpuv/DESCRIPTION")

    def command(self):
        return ["/usr/bin/Rscript", self.site / "app.R"]


class Tcl(Lines):
    name, kind, source, code = "tcl", "tcl", "app.tcl", TCL
    packages, programs = ("tcl",), ("/usr/bin/tclsh",)

    def command(self):
        return ["/usr/bin/tclsh", self.site / "app.tcl"]


class Guile(Application):
    name, kind, source, code = "guile", "scheme", "app.scm", GUILE
    packages, programs = ("guile-3.0",), ("/usr/bin/guile",)

    def command(self):
        return ["/usr/bin/guile", "--no-auto-compile", self.site / "app.scm"]


class Elixir(Lines):
    name, kind, source, code = "elixir", "erlang", "app.exs", ELIXIR
    packages, programs = ("elixir",), ("/usr/bin/elixir",)

    def command(self):
        self.environment = {"HOME": str(self.site), "LC_ALL": "C.UTF-8"}
        return ["/usr/bin/elixir", self.site / "app.exs"]


class Pypy(Application):
    name, kind, source = "pypy", "python", "app.py"
    packages, programs = ("pypy3",), ("/usr/bin/pypy3",)
    code = """\
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
class Answer(BaseHTTPRequestHandler):
    def do_POST(self):
        text = f"{self.path} {len(self.rfile.read(int(self.headers['Content-Length'])))}\\n".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)
    def log_message(self, *words):
        pass
ThreadingHTTPServer(("0.0.0.0", @PORT@), Answer).serve_forever()
"""

    def command(self):
        return ["/usr/bin/pypy3", self.site / "app.py"]


class Prolog(Application):
    name, kind, source, code = "prolog", "prolog", "app.pl", PROLOG
    packages, programs = ("swi-prolog",), ("/usr/bin/swipl",)

    def command(self):
        return ["/usr/bin/swipl", self.site / "app.pl"]


class Compiled(Lines):
    compiler, words = "", ()

    def prepare(self):
        super().prepare()
        once("sh", "-c", f"cd {self.site} && {' '.join(self.words)}")

    def command(self):
        return [self.site / "app"]


class Haskell(Compiled):
    name, kind, source, code = "haskell", "haskell", "app.hs", HASKELL
    packages = ("ghc", "libghc-network-dev")
    programs = ("/usr/bin/ghc", "/var/lib/ghc/package.conf.d")
    words = ("ghc", "-O", "-threaded", "-rtsopts", "app.hs", "-o", "app")

    def command(self):
        return [self.site / "app", "+RTS", "-N2"]


class Ocaml(Compiled):
    name, kind, source, code = "ocaml", "ocaml", "app.ml", OCAML
    packages, programs = ("ocaml-nox",), ("/usr/bin/ocamlfind",) if pathlib.Path("/usr/bin/ocamlfind").exists() else ("/usr/bin/ocamlopt",)
    words = ("ocamlopt", "-I", "+unix", "-I", "+threads", "unix.cmxa", "threads.cmxa", "app.ml", "-o", "app")


class Ada(Compiled):
    name, kind, source, code = "ada", "ada", "app.adb", ADA
    packages, programs = ("gnat",), ("/usr/bin/gnatmake",)
    words = ("gnatmake", "-q", "app.adb")

    def check(self, address, number):
        return talk(address, *((f"line {number} {turn}\n", r"\n") for turn in range(6)))

