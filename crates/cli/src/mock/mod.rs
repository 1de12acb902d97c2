//! `fanlight mock`: a server that answers as recorded (docs/recordings.md).
//!
//! The player is a state machine without transport: it finds the recorded request that a client
//! repeats, and yields the recorded messages with their delays. Clients of the recorded era talk to
//! it directly, over stdio or HTTP. For the other era the program puts a gateway in front of a mock
//! of the recorded era, so that the translation is the gateway's own.

mod connection;
mod http;
mod player;
mod stdio;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use fanlight_config::{Config, EraChoice, Server, Transport};
use fanlight_http::ListeningSocket;
use fanlight_protocol::Era;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

use self::connection::MockedClient;
pub use self::http::Bridge;
use self::http::HttpMock;
pub(crate) use self::player::Author;
use self::player::Player;
use crate::cli::{MockArgs, MockEra};
use crate::failure::{Failure, Result};
use crate::recording::Recording;
use crate::recording::script::{Script, era_of};

/// The number of messages that wait for a client.
const QUEUE: usize = 16;

/// The time limit of a translated call.
const LONGEST_CALL: Duration = Duration::from_secs(24 * 3600);

/// A recording that can be played.
pub struct Mock<'a> {
    player: Arc<Player>,
    args: &'a MockArgs,
}

impl<'a> Mock<'a> {
    /// Reads the recording.
    ///
    /// # Errors
    ///
    /// If it cannot be read, or has no such server.
    pub fn read(args: &'a MockArgs) -> Result<Self> {
        if let Some(address) = args.listen.as_ref().filter(|address| !address.is_local()) {
            return Err(usage!(
                "clients at {address} can be on other machines, and a mock answers everyone: listen on 127.0.0.1"
            ));
        }
        let recording = Recording::read(&args.file)?;
        let script = Script::arrange(&recording, args.server.as_deref())?;
        let player = Arc::new(Player {
            script,
            is_fast: args.fast,
            author: None,
        });
        Ok(Self { player, args })
    }

    /// The era of clients that are served; `None` for both.
    pub fn served_era(&self) -> Option<Era> {
        match self.args.era {
            MockEra::Auto => None,
            MockEra::Legacy => Some(Era::Legacy),
            MockEra::Modern => Some(Era::Modern),
        }
    }

    /// Whether clients of this era are answered as recorded, without translation.
    pub fn plays(&self, era: Era) -> bool {
        self.player.plays(era)
    }

    /// The configuration of the gateway that translates for clients of this era.
    ///
    /// # Errors
    ///
    /// If the path of the program cannot be found.
    pub fn bridge(&self, era: Era) -> Result<Config> {
        let program = std::env::current_exe()?;
        let (recorded, name) = match era {
            Era::Legacy => (EraChoice::Modern, "modern"),
            Era::Modern => (EraChoice::Legacy, "legacy"),
        };
        let mut args = vec![
            "mock".to_owned(),
            format!("--era={name}"),
            self.args.file.display().to_string(),
        ];
        args.extend(self.args.server.iter().map(|it| format!("--server={it}")));
        args.extend(self.args.fast.then(|| "--fast".to_owned()));
        let transport = Transport::Stdio {
            command: program.display().to_string(),
            args,
            env: Vec::new(),
            cwd: None,
        };
        let mut config = Config {
            servers: vec![Server {
                era: recorded,
                ..Server::new("mock", transport)
            }],
            ..Config::default()
        };
        // The recording decides how long a call takes.
        config.timeouts.call = LONGEST_CALL;
        Ok(config)
    }

    /// The era of clients that need the gateway, if there is one.
    pub fn bridged(&self) -> Option<Era> {
        let served = |era: &Era| self.served_era().is_none_or(|only| only == *era);
        let mut eras = [Era::Legacy, Era::Modern].into_iter();
        eras.find(|era| served(era) && !self.plays(*era))
    }

    /// Reads the first line of a client on stdio. Returns its era, and the whole input.
    ///
    /// # Errors
    ///
    /// If the input fails.
    pub async fn first_line<I: AsyncRead + Send + Unpin>(
        &self,
        input: I,
    ) -> Result<(Era, impl AsyncRead + Send + Unpin + use<I>)> {
        let (line, input) = stdio::first_line(input).await?;
        let first = connection::messages(line).into_iter().flatten().next();
        let era = first.map(|message| era_of(&message, None));
        Ok((self.served_era().or(era).unwrap_or(Era::Legacy), input))
    }

    /// Plays to one client of this era.
    ///
    /// # Errors
    ///
    /// If a stream fails.
    pub async fn serve_stdio(
        &self,
        era: Era,
        input: impl AsyncRead + Send + Unpin,
        output: impl AsyncWrite + Send + Unpin,
    ) -> Result {
        let connection = MockedClient::new(Arc::clone(&self.player), era);
        stdio::serve(connection, input, output)
            .await
            .map_err(Failure::other)
    }

    /// Plays to clients over HTTP until `shutdown`.
    pub async fn serve_http(
        &self,
        socket: ListeningSocket,
        bridge: Option<Bridge>,
        shutdown: CancellationToken,
    ) {
        let mock = HttpMock::new(&self.player, self.served_era(), bridge);
        http::serve(mock, socket, shutdown).await;
    }
}

/// Serves the answers of an author over HTTP until `shutdown`, to clients of both eras or of one.
pub(crate) async fn serve_author(
    author: Arc<dyn Author>,
    only: Option<Era>,
    socket: ListeningSocket,
    shutdown: CancellationToken,
) {
    let mock = HttpMock::new(&authored(author), only, None);
    http::serve(mock, socket, shutdown).await;
}

/// Serves the answers of an author to one client on a pair of streams.
pub(crate) async fn serve_author_on_pipe(
    author: Arc<dyn Author>,
    era: Era,
    input: impl AsyncRead + Send + Unpin,
    output: impl AsyncWrite + Send + Unpin,
) -> std::io::Result<()> {
    stdio::serve(MockedClient::new(authored(author), era), input, output).await
}

fn authored(author: Arc<dyn Author>) -> Arc<Player> {
    Arc::new(Player {
        author: Some(author),
        ..Player::default()
    })
}
