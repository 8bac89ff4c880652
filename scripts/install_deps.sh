#!/bin/bash
# Installs what is missing to build and run Crane on Debian 12; with --test also the servers and clients that
# the demo, the tests and the evaluation use. Starts no service, and does nothing when all is there.
set -euo pipefail

usage() {
    cat <<'TEXT'
usage: install_deps.sh [--demo | --test | --bench | --coverage | --trials | --matrix | --package | --deploy] [--check]
  (none)    what building and running Crane needs
  --demo    besides: Apache, curl and ab
  --test    besides: every server and client of the tests and the evaluation
  --bench   besides: what consensus is measured against (etcd), and what draws the plots
  --trials  besides what --test has: further servers and their loads, for make takes; load balancers and a browser
  --matrix  besides what --trials has: the servers and clients of make matrix, three gigabytes
  --coverage  besides: what tells which lines the tests run (gcovr)
  --package  besides: what Debian packages are built with (make deb)
  --deploy  besides what --package has: ansible, what hosts for make deploy-test are made with, and their loads
  --check   install nothing; list what is missing and exit 1 if anything is
Without an option and with --test also CRIU, for process images (scripts/install_criu.sh); where it cannot be had that is
said, and the rest goes on.
TEXT
}

build=(g++ make binutils libc6-dev libevent-dev libdb5.3-dev libssl-dev libxxhash-dev libspdlog-dev libfmt-dev
    libboost-dev catch2 libcli11-dev libtomlplusplus-dev nlohmann-json3-dev libdw-dev libseccomp-dev prometheus-cpp-dev lxc lxc-dev python3 procps iproute2
    tar zstd squashfs-tools)
demo=(apache2 apache2-utils curl)
test=(redis-server redis-tools memcached libmemcached-tools nginx civetweb strace wrk linux-perf
    lighttpd mariadb-server postgresql prometheus git clang-format clang-tidy clang libclang-rt-14-dev openssl spin golang-go nftables
    e2fsprogs xfsprogs
    haproxy slapd ldap-utils mosquitto mosquitto-clients bind9 bind9-dnsutils dovecot-imapd puma starman gunicorn rsync)
bench=(etcd-server golang-go python3-matplotlib)
coverage=(gcovr)
package=(debhelper lintian fakeroot)
deploy=(ansible-core ansible-lint openssh-client openssl mmdebstrap xfsprogs mariadb-client apache2-utils sysbench python3-apt)
trials=(php8.2-fpm clamav-daemon sysbench haproxy keepalived chromium)
# As tests/matrix/matrix.py --packages has it.
matrix=(libapache2-mod-php8.2 libapache2-mod-wsgi-py3 libnginx-mod-http-brotli-filter php-cgi php8.2-sqlite3 h2o caddy mini-httpd webfs
    nghttp2-server gunicorn uwsgi-core uwsgi-plugin-python3 python3-waitress python3-aiohttp python3-tornado python3-twisted
    uvicorn starman libplack-perl libmojolicious-perl puma unicorn ruby-webrick haproxy tinyproxy privoxy squid varnish gcc hitch stunnel4
    socat trafficserver libgrpc++-dev libprotobuf-dev protobuf-compiler-grpc pkg-config erlang-base postfix dovecot-imapd
    ngircd inspircd prosody bind9 bind9-dnsutils unbound nsd knot dnsmasq pdns-server pdns-backend-bind slapd ldap-utils dictd dictfmt
    vsftpd rsync git subversion openssh-server openssh-client dropbear-bin icecast2 cups-daemon cups-client distcc mosquitto
    mosquitto-clients beanstalkd gearman-job-server gearman-tools sasl2-bin pgbouncer zookeeper
    etcd-server spamd spamassassin spamc clamdscan rabbitmq-server amqp-tools ejabberd transmission-daemon mpd radicale xinetd monit samba
    smbclient postgrey thin tomcat10 python3-aiosmtpd python3-gevent tftpd-hpa snmpd snmp freeradius freeradius-utils coturn mumble-server kamailio
    sbcl cl-hunchentoot racket mono-mcs mono-runtime r-base-core r-cran-httpuv tcl guile-3.0 elixir pypy3 swi-prolog ghc libghc-network-dev
    ocaml-nox gnat sphinxsearch firebird3.0-server firebird3.0-utils munin-node uhub webdis nutcracker sslh tarantool
    libboost-dev libuv1-dev qtbase5-dev nim gdc ocaml-findlib liblwt-ocaml-dev python3-zmq derby-tools xvfb x11-utils
    rspamd fossil mercurial znc supervisor snapserver aria2 python3-pyftpdlib jupyter-notebook
    opentracker netdata-core dnsdist knot-resolver apt-cacher-ng rrdcached gjs gir1.2-soup-3.0 minidlna
    rinetd redir simpleproxy stone dante-server websockify pgpool2 gophernicus ipsvd micro-httpd ucspi-tcp tang cvs yaws libwebsockets-test-server
    daphne python3-hypercorn python3-cherrypy3 yadifa pdns-recursor rbldnsd graphite-carbon nbd-server qemu-utils tgt libiscsi-bin
    nagios-nrpe-server nagios-nrpe-plugin zabbix-agent redis-sentinel ser2net oidentd nats-server bip
    nfs-ganesha nfs-ganesha-mem libnfs-utils groonga-bin gdnsd gccgo rakudo emacs-nox crystal neovim picolisp openvswitch-common nbdkit
    389-ds-base libvirt-daemon libvirt-clients debuginfod janus libreoffice-writer-nogui python3-uno chromium pulseaudio pulseaudio-utils)
# Each takes another one's place, so they are not installed beside them: proftpd-core, ircd-hybrid, atftpd, chrony.
command -v rustc >/dev/null || matrix+=(rustc)
# From wherever they are.
command -v javac >/dev/null || trials+=(default-jdk-headless)
command -v node >/dev/null || trials+=(nodejs)

wanted=("${build[@]}")
check_only=false
criu=true
for option in "$@"; do
    case "$option" in
        --demo) wanted+=("${demo[@]}") criu=false ;;
        --test) wanted+=("${demo[@]}" "${test[@]}") ;;
        --trials) wanted+=("${demo[@]}" "${test[@]}" "${trials[@]}") ;;
        --matrix) wanted+=("${demo[@]}" "${test[@]}" "${trials[@]}" "${matrix[@]}") ;;
        --bench) wanted+=("${bench[@]}") criu=false ;;
        --coverage) wanted+=("${coverage[@]}") criu=false ;;
        --package) wanted+=("${package[@]}") criu=false ;;
        --deploy) wanted+=("${package[@]}" "${deploy[@]}") ;;
        --check) check_only=true ;;
        -h | --help) usage && exit 0 ;;
        *) usage >&2 && exit 2 ;;
    esac
done

say() { echo "install_deps: $*"; }

# Last, and its failure is none of the set-up: everything but process images works without.
bring_criu() {
    if $criu && ! "$(dirname "$(readlink -f "$0")")/install_criu.sh"; then
        say "warning: no working CRIU, and so no process images" >&2
    fi
}

missing_packages() {
    local installed package
    # dpkg-query fails as a whole when it does not know one of the names.
    installed=$({ dpkg-query -W -f '${Package} ${db:Status-Status}\n' "${wanted[@]}" 2>/dev/null || true; } |
        awk '$2 == "installed" { print $1 }')
    for package in "${wanted[@]}"; do
        grep -qxF -- "$package" <<<"$installed" || echo "$package"
    done
}

if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
    say "this is not a Debian system; install the equivalents of: ${wanted[*]}" >&2
    exit 1
fi
mapfile -t missing < <(missing_packages)
if ((${#missing[@]} == 0)); then
    $check_only || bring_criu
    exit 0
fi
if $check_only; then
    say "missing: ${missing[*]}"
    exit 1
fi

as_root=()
if ((EUID != 0)); then
    if command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
        as_root=(sudo)
    elif command -v sudo >/dev/null && [[ -t 0 ]]; then
        as_root=(sudo)
    else
        say "missing: ${missing[*]}" >&2
        say "neither root nor sudo: have an administrator run: apt-get install --no-install-recommends ${missing[*]}" >&2
        exit 1
    fi
fi

# Packages ask policy-rc.d whether they may start their service. An own one says no, and the one that was
# there comes back whatever happens.
policy=/usr/sbin/policy-rc.d
saved=$(mktemp -u "$policy.crane-XXXXXX")
restore_policy() {
    "${as_root[@]}" rm -f "$policy"
    if [[ -e $saved || -L $saved ]]; then "${as_root[@]}" mv -f "$saved" "$policy"; fi
}
trap restore_policy EXIT
if [[ -e $policy || -L $policy ]]; then "${as_root[@]}" mv "$policy" "$saved"; fi
printf '#!/bin/sh\nexit 101\n' | "${as_root[@]}" tee "$policy" >/dev/null
"${as_root[@]}" chmod 755 "$policy"

say "installing ${missing[*]}"
install_now() {
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends \
        -o Dpkg::Use-Pty=0 -o DPkg::Lock::Timeout=300 "${missing[@]}"
}
log=$(mktemp)
if ! install_now >"$log" 2>&1; then
    # The package lists may be old or absent; a refresh is worth its time only now.
    if ! { "${as_root[@]}" apt-get update -q && install_now; } >"$log" 2>&1; then
        tail -n 15 "$log" >&2
        say "apt-get could not install the packages above; the whole log is $log" >&2
        exit 1
    fi
fi
rm -f "$log"

# On a machine with systemd a package also enables its service for the next boot; only what was installed
# just now is touched, for the operator's own services are hers.
if [[ -d /run/systemd/system ]]; then
    for package in "${missing[@]}" liblxc-common lxcfs; do
        units=$(dpkg-query -L "$package" 2>/dev/null | sed -n 's|.*/systemd/system/\([^/@]*\.\(service\|socket\)\)$|\1|p')
        for unit in $units; do
            case " ${missing[*]} " in *" $package "* | *" lxc "*) ;; *) continue ;; esac
            "${as_root[@]}" systemctl disable --quiet --now "$unit" >/dev/null 2>&1 || true
        done
    done
fi

mapfile -t still < <(missing_packages)
if ((${#still[@]} > 0)); then
    say "still missing after apt-get install: ${still[*]}" >&2
    exit 1
fi
bring_criu
say "done"
