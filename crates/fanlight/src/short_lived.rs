//! Gateways that live for one command.

use std::sync::Arc;

use fanlight_canonical::DEFAULT_PATH;
use fanlight_cli::cli::{CallArgs, EndpointArgs, ReplayArgs, TraceArgs, TraceTestArgs};
use fanlight_cli::inspect::{self, Client, DirectCall};
use fanlight_cli::log::Log;
use fanlight_cli::replay::Replay;
use fanlight_cli::users::{Clients, Users, auth_of_users};
use fanlight_cli::{Failure, Result, interruptible, starts, telemetry};
use fanlight_config::{Config, EraChoice, Secret, Server, StartChoice, Transport};
use fanlight_frontend::{FrontendSettings, serve_http};
use fanlight_protocol::Era;
use fanlight_record::AuditLog;
use fanlight_replicas::Replicas;
use fanlight_telemetry::Telemetry;
use http::header::AUTHORIZATION;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::assembly::Assembly;
use crate::wiring::frontend_settings;
use crate::{auth, content};

/// Starts an assembly, runs `command` with it and stops it. Prints the failures of servers that do
/// not start before the command runs.
pub(crate) async fn with_assembly<T>(
    config: &Config,
    command: impl AsyncFnOnce(&Assembly) -> Result<T>,
) -> Result<T> {
    observed(config, &Telemetry::off(), async |assembly| {
        inspect::complain(&assembly.gateway);
        command(assembly).await
    })
    .await
}

/// Like [`with_assembly`], with a gateway's telemetry, which is delivered at the end.
async fn with_traced_assembly<T>(
    config: &Config,
    command: impl AsyncFnOnce(&Assembly, &Telemetry) -> Result<T>,
) -> Result<T> {
    let (telemetry, guard) = telemetry::start(
        config,
        content::settings(config),
        &TraceArgs::default(),
        &Log::Direct,
    )?;
    let result = observed(config, &telemetry, async |assembly| {
        inspect::complain(&assembly.gateway);
        command(assembly, &telemetry).await
    })
    .await;
    telemetry::end(guard).await;
    result
}

/// Like [`with_assembly`], without a word about servers that do not start.
pub(crate) async fn observed<T>(
    config: &Config,
    telemetry: &Telemetry,
    command: impl AsyncFnOnce(&Assembly) -> Result<T>,
) -> Result<T> {
    let end = CancellationToken::new();
    let has_users = config
        .servers
        .iter()
        .any(|server| auth_of_users(server).is_some());
    let replicas = if has_users {
        Replicas::connect(config).await?
    } else {
        None
    };
    let record = Arc::new(AuditLog::default());
    let (common, clients) = (
        replicas.as_ref().map(|(replicas, _)| replicas),
        Clients::OfOneUser,
    );
    let users = Users::new(config, common, clients, None, Arc::clone(&record));
    // Commands show the current state and store nothing of it.
    let mut config = Config {
        state_dir: None,
        ..config.clone()
    };
    // A server that would start on demand gets the same time to start here.
    config
        .servers
        .iter_mut()
        .for_each(|server| server.start = Some(StartChoice::Eager));
    let config = &config;
    let assembly = Assembly::start(config, telemetry, &end, None, users, None, record)?;
    let started = async {
        starts::show(&assembly.gateway).await;
        command(&assembly).await
    };
    let result = interruptible(started).await;
    assembly.stop().await;
    end.cancel();
    result
}

/// The configuration with every server at the default endpoint, unless the command names an
/// endpoint.
fn looked_through(config: &Config, endpoint: &EndpointArgs) -> Config {
    let mut config = config.clone();
    if endpoint.path().is_none() {
        config.endpoints.clear();
    }
    config
}

/// `fanlight diff`. A client over HTTP calls through the gateway. It uses the server's era, so that
/// the gateway has nothing to translate.
pub(crate) async fn diff(config: &Config, args: &CallArgs) -> Result {
    let config = &looked_through(config, &args.endpoint);
    let (direct, through) = with_assembly(config, async |assembly| {
        let direct = DirectCall::run(&assembly.gateway, assembly.servers.backends(), args).await?;
        let era = match direct.era {
            Era::Legacy => EraChoice::Legacy,
            Era::Modern => EraChoice::Modern,
        };
        let path = args.endpoint.path().unwrap_or(DEFAULT_PATH);
        let telemetry = Telemetry::off();
        let through = with_endpoint(config, assembly, &telemetry, path, async |url, key| {
            let headers = vec![(
                AUTHORIZATION.to_string(),
                Secret::new(format!("Bearer {key}")),
            )];
            let server = Server {
                era,
                timeout: config.timeouts.call,
                ..Server::new("gateway", Transport::Http { url, headers })
            };
            let client = Config {
                servers: vec![server],
                ..Config::default()
            };
            with_assembly(&client, async |client| {
                direct.send_through(client.servers.backends()).await
            })
            .await
        })
        .await?;
        Ok((direct, through))
    })
    .await?;
    direct.compare(&through, args.json)
}

/// `fanlight replay`. `loaded` is the configuration, if the command line names one of its servers.
pub(crate) async fn replay(loaded: Option<&Config>, args: &ReplayArgs) -> Result {
    let replay = Replay::read(args)?;
    let config = replay.config(loaded)?;
    observed(&config, &Telemetry::off(), async |assembly| {
        let client = assembly.servers.backends().next();
        match (config.servers.first(), client) {
            (Some(server), Some((_, client))) => replay.run(server, &*client).await,
            _ => Err(Failure::usage("there is no server to test")),
        }
    })
    .await
}

/// `fanlight trace-test` without a running gateway.
pub(crate) async fn trace_test(config: &Config, args: &TraceTestArgs) -> Result {
    let config = &looked_through(config, &EndpointArgs::default());
    with_traced_assembly(config, async |assembly, telemetry| {
        with_endpoint(
            config,
            assembly,
            telemetry,
            DEFAULT_PATH,
            async |url, key| {
                let client = Client::new(&url, config.timeouts.call)?.with_token(key);
                inspect::trace_test(&client, telemetry, args).await
            },
        )
        .await
    })
    .await
}

/// Serves one client on loopback while `command` runs, which gets the URL and the client's key.
pub(crate) async fn with_endpoint<T>(
    config: &Config,
    assembly: &Assembly,
    telemetry: &Telemetry,
    path: &str,
    command: impl AsyncFnOnce(String, String) -> Result<T>,
) -> Result<T> {
    let end = CancellationToken::new();
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let url = format!("http://{}{path}", listener.local_addr()?);
    let (key, authenticate) = auth::for_one_client()?;
    let settings = Arc::new(FrontendSettings {
        authenticate,
        ..frontend_settings(config, telemetry, &CancellationToken::new())
    });
    let gateway = Arc::clone(&assembly.gateway);
    let front = tokio::spawn(serve_http(listener, gateway, settings, end.clone()));
    let outcome = command(url, key).await;
    end.cancel();
    let served = front.await.map_err(Failure::other)?;
    served.map_err(Failure::other)?;
    outcome
}
