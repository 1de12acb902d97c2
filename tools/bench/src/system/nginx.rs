//! nginx as a plain reverse proxy: one worker, kept connections to the server, default buffering.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::process::Process;
use super::{Bench, Kind, System, folder_with, free_address};
use crate::error::{BenchError, Result, within};

pub(super) async fn start(bench: &Bench, server: SocketAddr) -> Result<System> {
    let program = program()?;
    // nginx cannot choose a free port itself.
    let address = free_address()?;
    let (folder, config) = folder_with("nginx.conf", &config(address, server))?;
    let args = [
        "-p".into(),
        folder.path().into(),
        "-c".into(),
        config.into(),
    ];
    let process = Process::start("nginx", &program, &args, bench.gateway)?;
    within("nginx to listen", 10, listening(address)).await?;
    Ok(System {
        process: Some(process),
        _folder: Some(folder),
        ..System::open(Kind::Nginx, address)
    })
}

fn program() -> Result<PathBuf> {
    let places = ["/usr/sbin/nginx", "/usr/bin/nginx", "/usr/local/sbin/nginx"];
    places
        .iter()
        .map(PathBuf::from)
        .find(|path| path.exists())
        .ok_or_else(|| BenchError::Missing {
            program: Path::new("nginx").to_owned(),
            hint: "install the Debian package nginx-light to compare with it",
        })
}

async fn listening(address: SocketAddr) -> Result<()> {
    while tokio::net::TcpStream::connect(address).await.is_err() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}

/// A configuration with one process that is master and worker. Its temporary files go to its start
/// folder.
fn config(address: SocketAddr, server: SocketAddr) -> String {
    format!(
        r"daemon off;
master_process off;
worker_processes 1;
worker_rlimit_nofile 65536;
error_log stderr crit;
pid nginx.pid;
events {{ worker_connections 65536; }}
http {{
  access_log off;
  keepalive_requests 1000000000;
  client_max_body_size 16m;
  client_body_temp_path body;
  proxy_temp_path proxy;
  fastcgi_temp_path fastcgi;
  uwsgi_temp_path uwsgi;
  scgi_temp_path scgi;
  upstream server {{ server {server}; keepalive 256; keepalive_requests 1000000000; }}
  server {{
    listen {address} backlog=4096;
    location / {{
      proxy_pass http://server;
      proxy_http_version 1.1;
      proxy_set_header Connection '';
      proxy_read_timeout 1h;
    }}
  }}
}}
"
    )
}
