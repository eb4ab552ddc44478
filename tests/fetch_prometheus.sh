#!/bin/sh
# Unpacks Debian's package of Prometheus into a folder: fetch_prometheus.sh FOLDER
set -e
mkdir -p "$1"
cd "$1"
apt-get download --quiet prometheus || { apt-get update --quiet && apt-get download --quiet prometheus; }
dpkg-deb --extract prometheus_*.deb .
rm prometheus_*.deb
usr/bin/prometheus --version
