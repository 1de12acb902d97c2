//! `fanlight mock`: a recording as a server, and the gateway that translates it for clients of the
//! era that was not recorded.

use std::sync::Arc;

use fanlight_canonical::DEFAULT_PATH;
use fanlight_cli::cli::MockArgs;
use fanlight_cli::mock::{Bridge, Mock};
use fanlight_cli::{Failure, Result, say};
use fanlight_frontend::{ListeningSocket, serve_stdio};
use fanlight_telemetry::Telemetry;
use tokio_util::sync::CancellationToken;

use crate::short_lived::{with_assembly, with_endpoint};
use crate::wiring::frontend_settings;
use crate::{listening, standard_io};

/// Serves until the input ends, or SIGINT arrives.
pub(crate) async fn mock(args: &MockArgs) -> Result {
    let mock = Mock::read(args)?;
    match &args.listen {
        Some(address) => {
            let socket = listening::bind(address, "--listen")?;
            Box::pin(http(&mock, socket)).await
        }
        None => Box::pin(stdio(&mock)).await,
    }
}

async fn http(mock: &Mock<'_>, socket: ListeningSocket) -> Result {
    let address = socket.address()?;
    let serve = async |bridge| {
        match address.ip() {
            Some(address) => say!("mock at http://{address}{DEFAULT_PATH}"),
            None => say!("mock at {address}"),
        }
        let end = CancellationToken::new();
        let interrupted = async {
            // Without a signal handler, SIGINT ends the process by default.
            match tokio::signal::ctrl_c().await {
                Ok(()) => end.cancel(),
                Err(_) => std::future::pending().await,
            }
        };
        tokio::join!(mock.serve_http(socket, bridge, end.clone()), interrupted);
    };
    let Some(era) = mock.bridged() else {
        serve(None).await;
        return Ok(());
    };
    let config = mock.bridge(era)?;
    with_assembly(&config, async |assembly| {
        let telemetry = Telemetry::off();
        with_endpoint(
            &config,
            assembly,
            &telemetry,
            DEFAULT_PATH,
            async |url, key| {
                serve(Some(Bridge::new(url, key))).await;
                Ok(())
            },
        )
        .await
    })
    .await
}

async fn stdio(mock: &Mock<'_>) -> Result {
    let (era, input) = mock.first_line(standard_io::input()).await?;
    let output = standard_io::output();
    if mock.plays(era) {
        return mock.serve_stdio(era, input, output).await;
    }
    let config = mock.bridge(era)?;
    with_assembly(&config, async |assembly| {
        let (telemetry, end) = (Telemetry::off(), CancellationToken::new());
        let settings = Arc::new(frontend_settings(&config, &telemetry, &end));
        let gateway = Arc::clone(&assembly.gateway);
        serve_stdio(input, output, gateway, settings, mock.served_era(), end)
            .await
            .map_err(Failure::other)
    })
    .await
}
