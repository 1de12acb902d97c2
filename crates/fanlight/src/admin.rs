//! The admin listener: its address, what it shows, and its settings.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use fanlight_admin::{AdminSettings, OperationError, Operations, Reloaded, Subject};
use fanlight_config::Config;
use fanlight_frontend::Insight;
use fanlight_gateway::Gateway;
use fanlight_protocol::Json;
use fanlight_protocol::json::DEFAULT_NESTING;
use fanlight_telemetry::Telemetry;
use futures_util::future::BoxFuture;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::cli::Admin;
use crate::failure::Failure;
use crate::reload::{Control, NoServer, Trigger};
use crate::serve::bind;

/// Binds the admin listener of a gateway on standard input and output: only if it is configured,
/// since clients start many such gateways on one machine.
pub(crate) async fn listen_if_configured(
    config: &mut Config,
    flag: Option<Admin>,
) -> Result<Option<TcpListener>, Failure> {
    if config.admin.is_default {
        config.admin.listen = None;
    }
    listen(config, flag, None).await
}

/// Binds the admin listener. Without `--admin` a failure is only logged: for a second Fanlight on the
/// same machine the default address is taken.
pub(crate) async fn listen(
    config: &mut Config,
    flag: Option<Admin>,
    socket: Option<TcpListener>,
) -> Result<Option<TcpListener>, Failure> {
    match flag {
        Some(Admin::Off) => config.admin.listen = None,
        Some(Admin::At(address)) => config.admin.listen = Some(address),
        None => {}
    }
    // A socket of the service manager has an address already.
    if let Some(socket) = &socket {
        config.admin.listen = socket.local_addr().ok();
    }
    let Some(address) = config.admin.listen else { return Ok(None) };
    if !config.admin.may_listen(address) {
        return Err(Failure::usage(format!(
            "--admin {address} can be reached from other machines, and there is no token: set `admin.token` in the \
             configuration, such as `token: ${{FANLIGHT_ADMIN_TOKEN}}`, or listen on 127.0.0.1"
        )));
    }
    if socket.is_some() {
        return Ok(socket);
    }
    let listener = match bind(address, "--admin", config.reuse_port).await {
        Ok(listener) => listener,
        Err(failure) if flag.is_some() => return Err(failure),
        Err(failure) => {
            warn!("no admin listener: {failure}");
            config.admin.listen = None;
            return Ok(None);
        }
    };
    config.admin.listen = listener.local_addr().ok().or(Some(address));
    Ok(Some(listener))
}

/// What the admin listener shows.
pub(crate) fn subject(
    control: &Control,
    gateway: &Arc<Gateway>,
    telemetry: &Telemetry,
    insight: Insight,
    draining: CancellationToken,
    endpoint: String,
) -> Subject {
    Subject {
        gateway: Arc::clone(gateway),
        telemetry: telemetry.clone(),
        clients: Arc::new(insight),
        operations: Arc::new(control.clone()),
        version: env!("CARGO_PKG_VERSION"),
        endpoint,
        draining,
    }
}

impl Operations for Control {
    fn config(&self) -> Json {
        parsed(self.state().to_json())
    }

    fn reload(&self) -> BoxFuture<'_, Result<Reloaded, OperationError>> {
        Box::pin(async {
            let outcome = self.reload(Trigger::Api).await.ok_or(OperationError::Ending)?;
            Ok(Reloaded { is_usable: !outcome.is_failed(), report: parsed(format!("{:#}", outcome.to_json())) })
        })
    }

    fn switch(&self, server: String, enabled: bool) -> BoxFuture<'_, Result<(), OperationError>> {
        Box::pin(async move { done(self.switch(server, enabled).await) })
    }

    fn restart(&self, server: String) -> BoxFuture<'_, Result<(), OperationError>> {
        Box::pin(async move { done(self.restart(server).await) })
    }
}

fn done(answer: Option<Result<(), NoServer>>) -> Result<(), OperationError> {
    answer.ok_or(OperationError::Ending)?.map_err(|NoServer| OperationError::NoSuchServer)
}

fn parsed(text: String) -> Json {
    Json::parse(Bytes::from(text), DEFAULT_NESTING).unwrap_or_else(|_| Json::null())
}

/// The settings of the admin listener.
pub(crate) fn settings(config: &Config) -> AdminSettings {
    AdminSettings {
        token: config.admin.token.as_ref().map(|token| token.expose().to_owned()),
        allowed_hosts: config.allowed_hosts.clone(),
        max_connections: config.limits.admin_connections,
        max_followers: config.limits.admin_followers,
        max_body: config.limits.request_body,
        max_header: config.limits.header,
        nesting: config.limits.nesting,
        header_timeout: config.timeouts.header,
        body_timeout: config.timeouts.body,
        write_timeout: config.timeouts.idle_connection,
        keep_alive: config.timeouts.keep_alive,
        event_interval: config.timeouts.admin_events,
        page_refresh: config.timeouts.admin_refresh,
        page_lists: config.timeouts.admin_lists,
        drain: config.timeouts.admin_drain,
    }
}

/// The URL of the operators' page.
pub(crate) fn page(address: SocketAddr) -> String {
    let host = match address.ip() {
        ip if ip.is_unspecified() => "127.0.0.1".to_owned(),
        std::net::IpAddr::V6(ip) => format!("[{ip}]"),
        std::net::IpAddr::V4(ip) => ip.to_string(),
    };
    format!("http://{host}:{}/ui", address.port())
}
