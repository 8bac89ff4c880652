"""Web servers and frameworks."""

from entry import PYTHON, Entry, http, once, write

PAGES = "".join(f"line {number} of a page that compresses well\n" for number in range(400))


class Web(Entry):
    """A small page, a large one, one that is not there, and a request that depends on the number."""

    kind = "web"
    dynamic = "/app"  # answers with what it was asked

    def pages(self):
        write(self.site / "www" / "index.html", "<html>crane</html>\n")
        write(self.site / "www" / "page.txt", PAGES)

    def check(self, address, number):
        return "\n".join((http(address, "/page.txt", "-r", f"{number * 10}-{number * 10 + 50}"),
                          http(address, f"/missing{number}", "-o", "/dev/null", "-w", "%{http_code}")))


class Application(Entry):
    """A framework: echoes a posted body, and counts by a key that each session has for itself."""

    kind = "application"
    source, code = "app", ""

    def prepare(self):
        write(self.site / self.source, self.code.replace("@PORT@", str(self.port)).replace("@SITE@", str(self.site)))

    def check(self, address, number):
        return "\n".join(http(address, f"/key{number}?n={turn}", "-d", f"body {number} {turn}" * 50) for turn in range(3))


APACHE = """\
ServerRoot {site}
Listen {port}
ServerName crane.test
PidFile {site}/pid
ErrorLog {site}/error.log
Mutex file:{site}
User www-data
Group www-data
LoadModule mpm_{mpm}_module /usr/lib/apache2/modules/mod_mpm_{mpm}.so
LoadModule authz_core_module /usr/lib/apache2/modules/mod_authz_core.so
LoadModule mime_module /usr/lib/apache2/modules/mod_mime.so
LoadModule dir_module /usr/lib/apache2/modules/mod_dir.so
LoadModule filter_module /usr/lib/apache2/modules/mod_filter.so
LoadModule deflate_module /usr/lib/apache2/modules/mod_deflate.so
LoadModule env_module /usr/lib/apache2/modules/mod_env.so
TypesConfig /etc/mime.types
StartServers 2
DocumentRoot {site}/www
<Directory />
Require all granted
</Directory>
AddOutputFilterByType DEFLATE text/plain
{more}
"""
WSGI = """\
counts = {}
def application(environ, start_response):
    body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    path = environ["PATH_INFO"]
    counts[path] = counts.get(path, 0) + 1
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [f"{path} {environ['QUERY_STRING']} {len(body)} {body[:9]!r}\\n".encode()]
"""
PHP = "<?php echo $_SERVER['REQUEST_URI'], ' ', strlen(file_get_contents('php://input')), ' ', md5($_SERVER['REQUEST_URI']), \"\\n\";\n"


class ApacheWorker(Web):
    name, mpm = "apache-worker", "worker"
    packages, programs = ("apache2",), ("/usr/sbin/apache2",)
    more = ""

    def prepare(self):
        self.pages()
        write(self.site / "www" / "app.php", PHP)
        write(self.site / "app.wsgi", WSGI)
        write(self.site / "apache.conf", APACHE.format(site=self.site, port=self.port, mpm=self.mpm,
                                                       more=self.more.format(site=self.site)))

    def command(self):
        return ["/usr/sbin/apache2", "-DFOREGROUND", "-f", self.site / "apache.conf"]


class ApachePrefork(ApacheWorker):
    name, mpm = "apache-prefork", "prefork"


class ApachePhp(ApacheWorker):
    name, mpm, kind = "apache-mod-php", "prefork", "php"
    packages = ("apache2", "libapache2-mod-php8.2")
    programs = ("/usr/lib/apache2/modules/libphp8.2.so",)
    more = "LoadModule php_module /usr/lib/apache2/modules/libphp8.2.so\n<FilesMatch \\.php$>\nSetHandler application/x-httpd-php\n</FilesMatch>"

    def check(self, address, number):
        return http(address, f"/app.php?{number}", "-d", "x" * number * 1000) + super().check(address, number)


class ApacheWsgi(ApacheWorker):
    name, mpm, kind = "apache-mod-wsgi", "event", "python"
    packages = ("apache2", "libapache2-mod-wsgi-py3")
    programs = ("/usr/lib/apache2/modules/mod_wsgi.so",)
    more = ("LoadModule wsgi_module /usr/lib/apache2/modules/mod_wsgi.so\nWSGIDaemonProcess d threads=3 processes=2\n"
            "WSGISocketPrefix {site}/wsgi\nWSGIProcessGroup d\nWSGIApplicationGroup %{{GLOBAL}}\nWSGIScriptAlias /app {site}/app.wsgi")

    def check(self, address, number):
        return http(address, f"/app/{number}?q", "-d", "x" * number * 1000) + super().check(address, number)


NGINX = """\
load_module /usr/lib/nginx/modules/ngx_http_brotli_filter_module.so;
daemon off; user www-data; pid {site}/pid; worker_processes 2; worker_rlimit_nofile 1024;
events {{ worker_connections 128; multi_accept on; }}
http {{
    access_log {site}/access.log; error_log {site}/error.log;
    client_body_temp_path {site}/b; proxy_temp_path {site}/p; fastcgi_temp_path {site}/f; uwsgi_temp_path {site}/u; scgi_temp_path {site}/s;
    proxy_cache_path {site}/cache keys_zone=c:1m; brotli on; brotli_types text/plain; gzip on; gzip_types text/plain;
    limit_req_zone $binary_remote_addr zone=z:1m rate=10000r/s;
    types {{ text/plain txt; }}
    server {{ listen {port}; root {site}/www; limit_req zone=z burst=100;
        location /proxied/ {{ proxy_pass http://127.0.0.1:{port}/; proxy_cache c; proxy_cache_valid 1h; }} }}
}}
"""


class NginxBrotli(Web):
    name = "nginx-brotli-cache"
    packages = ("nginx", "libnginx-mod-http-brotli-filter")
    programs = ("/usr/lib/nginx/modules/ngx_http_brotli_filter_module.so",)

    def prepare(self):
        self.pages()
        write(self.site / "nginx.conf", NGINX.format(site=self.site, port=self.port))

    def command(self):
        return ["/usr/sbin/nginx", "-e", self.site / "error.log", "-c", self.site / "nginx.conf"]

    def check(self, address, number):
        packed = http(address, "/page.txt", "-H", "Accept-Encoding: br", "-o", "/dev/null", "-w", "%{size_download}")
        return packed + http(address, f"/proxied/page.txt?{number}") + super().check(address, number)


LIGHTTPD = """\
server.document-root = "{site}/www"
server.port = {port}
server.errorlog = "{site}/error.log"
server.modules = ("mod_fastcgi", "mod_deflate", "mod_accesslog")
accesslog.filename = "{site}/access.log"
fastcgi.server = (".php" => (("bin-path" => "/usr/bin/php-cgi", "socket" => "{site}/php.sock", "max-procs" => 2,
    "bin-environment" => ("PHP_FCGI_CHILDREN" => "2"))))
"""


class LighttpdFastCgi(Web):
    name = "lighttpd-fastcgi"
    packages, programs = ("lighttpd", "php-cgi"), ("/usr/sbin/lighttpd", "/usr/bin/php-cgi")

    def prepare(self):
        self.pages()
        write(self.site / "www" / "app.php", PHP)
        write(self.site / "lighttpd.conf", LIGHTTPD.format(site=self.site, port=self.port))

    def command(self):
        return ["/usr/sbin/lighttpd", "-D", "-f", self.site / "lighttpd.conf"]

    def check(self, address, number):
        return http(address, f"/app.php?{number}", "-d", "x" * number * 1000) + super().check(address, number)


H2O = """\
listen: {port}
user: root
num-threads: 2
pid-file: {site}/pid
error-log: {site}/error.log
hosts:
  default:
    paths:
      /: {{ file.dir: {site}/www }}
"""


class H2o(Web):
    name = "h2o"
    packages, programs = ("h2o",), ("/usr/bin/h2o",)

    def prepare(self):
        self.pages()
        write(self.site / "h2o.conf", H2O.format(site=self.site, port=self.port))

    def command(self):
        return ["/usr/bin/h2o", "-c", self.site / "h2o.conf"]


class Caddy(Web):
    name = "caddy"
    packages, programs = ("caddy",), ("/usr/bin/caddy",)
    refused = "Go"

    def prepare(self):
        self.pages()

    def command(self):
        return ["/usr/bin/caddy", "file-server", "--listen", f":{self.port}", "--root", self.site / "www"]


class MiniHttpd(Web):
    """Forks for each request."""

    name = "mini-httpd"
    packages, programs = ("mini-httpd",), ("/usr/sbin/mini_httpd",)

    def prepare(self):
        self.pages()

    def command(self):
        return ["/usr/sbin/mini_httpd", "-D", "-p", self.port, "-d", self.site / "www", "-u", "root"]


class Webfsd(Web):
    name = "webfs"
    packages, programs = ("webfs",), ("/usr/bin/webfsd",)

    def prepare(self):
        self.pages()

    def command(self):
        return ["/usr/bin/webfsd", "-F", "-p", self.port, "-r", self.site / "www"]


class Nghttpd(Web):
    """HTTP/2 without TLS, threads."""

    name, kind = "nghttpd", "http2"
    packages, programs = ("nghttp2-server",), ("/usr/sbin/nghttpd",)

    def prepare(self):
        self.pages()

    def command(self):
        return ["/usr/sbin/nghttpd", "--no-tls", "-n", "2", "-d", self.site / "www", self.port]

    def check(self, address, number):
        return http(address, f"/page.txt?{number}", "--http2-prior-knowledge")


class NginxTls(NginxBrotli):
    name, kind = "nginx-tls-h2", "http2"

    def prepare(self):
        super().prepare()
        once("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", self.site / "key", "-out", self.site / "cert",
             "-subj", "/CN=crane.test", "-days", "3650")
        text = (self.site / "nginx.conf").read_text().replace(f"listen {self.port};", f"listen {self.port} ssl http2;"
            f"ssl_certificate {self.site}/cert; ssl_certificate_key {self.site}/key;").replace("http://127", "https://127")
        write(self.site / "nginx.conf", text)

    def check(self, address, number):
        return http(address, f"/proxied/page.txt?{number}", "-k", "--http2", scheme="https")


class Gunicorn(Application):
    name, kind, source, code = "gunicorn", "python", "app.py", WSGI
    packages, programs = ("gunicorn",), ("/usr/bin/gunicorn",)

    def command(self):
        return ["/usr/bin/gunicorn", "-w", "2", "--threads", "2", "-b", f"0.0.0.0:{self.port}", "--chdir", self.site, "app"]


class Uwsgi(Application):
    name, kind, source, code = "uwsgi", "python", "app.py", WSGI
    packages, programs = ("uwsgi-core", "uwsgi-plugin-python3"), ("/usr/bin/uwsgi-core",)

    def command(self):
        return ["/usr/bin/uwsgi-core", "--plugin", "python3", "--http-socket", f":{self.port}", "--wsgi-file", self.site / "app.py",
                "--master", "--processes", "2", "--threads", "2", "--die-on-term"]


class Waitress(Application):
    name, kind, source, code = "waitress", "python", "app.py", WSGI
    packages, programs = ("python3-waitress",), ("/usr/lib/python3/dist-packages/waitress/__init__.py",)

    def command(self):
        return [PYTHON, "-c", f"import sys; sys.path.insert(0, '{self.site}'); import app, waitress; "
                f"waitress.serve(app.application, listen='0.0.0.0:{self.port}')"]
