//! The reference server on rmcp. It passes the official suite by itself, so a check that is lost
//! through Fanlight is Fanlight's fault. It supports every revision over Streamable HTTP on
//! loopback, or over stdio, and has the tasks extension.
//!
//!     reference-rmcp [--port N] [--eras legacy|modern|both]     prints one line, `listening on URL`
//!     reference-rmcp --stdio [--eras …]

#![expect(deprecated, reason = "legacy revisions are the point: logging, and requests of the server's own")]

mod content;
mod data;
mod handler;
mod input;
mod tasks;
mod tools;

use std::error::Error;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use rmcp::ServiceExt;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use tokio::net::TcpListener;

use crate::handler::{Eras, Reference};

const RETRY: Duration = Duration::from_millis(100);

struct Options {
    port: u16,
    eras: Eras,
    stdio: bool,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let options = options(std::env::args().skip(1))?;
    let server = Reference::new(options.eras)?;
    if options.stdio {
        server.serve(rmcp::transport::stdio()).await?.waiting().await?;
        return Ok(());
    }
    serve_http(server, options.port).await
}

fn options(mut arguments: impl Iterator<Item = String>) -> Result<Options, String> {
    let mut options = Options { port: 0, eras: Eras::Both, stdio: false };
    while let Some(name) = arguments.next() {
        if name == "--stdio" {
            options.stdio = true;
            continue;
        }
        let value = arguments.next().ok_or_else(|| format!("{name} needs a value"))?;
        match name.as_str() {
            "--port" => options.port = value.parse().map_err(|error| format!("--port {value}: {error}"))?,
            "--eras" => options.eras = value.parse()?,
            _ => return Err(format!("unknown option {name}")),
        }
    }
    Ok(options)
}

/// Serves until the process is ended.
async fn serve_http(server: Reference, port: u16) -> Result<(), Box<dyn Error>> {
    let listener = TcpListener::bind(("127.0.0.1", port)).await?;
    println!("listening on http://{}/mcp", listener.local_addr()?);
    let service: StreamableHttpService<Reference, LocalSessionManager> = StreamableHttpService::new(
        move || Ok(server.session()),
        LocalSessionManager::default().into(),
        StreamableHttpServerConfig::default().with_sse_retry(Some(RETRY)),
    );
    loop {
        let (connection, _) = listener.accept().await?;
        let service = TowerToHyperService::new(service.clone());
        tokio::spawn(async move {
            let http = hyper::server::conn::http1::Builder::new();
            // An error means that the client closed the connection.
            let _ = http.serve_connection(TokioIo::new(connection), service).await;
        });
    }
}
