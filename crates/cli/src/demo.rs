//! The demo that runs without a configuration: two small servers, one of each era, as child
//! processes of the same binary.

use std::io::{BufReader, stdin, stdout};
use std::path::PathBuf;

use fanlight_config::{Config, Loaded, Server, Transport};
use fanlight_protocol::Era;

use crate::failure::Result;

/// The demo's stand-in for the path of a configuration file.
pub const ORIGIN: &str = "(built-in demo)";

/// The note that commands other than `run` print when they use the demo.
pub const NOTICE: &str =
    "without a configuration, Fanlight uses two small demo servers; --config FILE names yours";

/// Whether this configuration is the demo.
pub fn is_demo(loaded: &Loaded) -> bool {
    loaded.path.as_os_str() == ORIGIN
}

/// The configuration with the two servers.
pub fn config() -> Result<Loaded> {
    let program = std::env::current_exe()
        .ok()
        .and_then(|path| path.into_os_string().into_string().ok())
        .ok_or_else(|| {
            failure!(
                "cannot find the path of the fanlight program, which the demo runs; use --config",
            )
        })?;
    let server = |name: &str, era: &str| {
        let args = vec!["demo-server".to_owned(), era.to_owned()];
        Server::new(
            name,
            Transport::Stdio {
                command: program.clone(),
                args,
                env: Vec::new(),
                cwd: None,
            },
        )
    };
    let servers = vec![server("library", "legacy"), server("workshop", "modern")];
    let config = Config {
        servers,
        ..Config::default()
    };
    Ok(Loaded {
        config,
        warnings: Vec::new(),
        path: PathBuf::from(ORIGIN),
        files: Vec::new(),
        rights: Vec::new(),
    })
}

/// Runs one of the two demo servers until standard input ends.
pub fn serve(era: Era) -> Result {
    let (input, output) = (BufReader::new(stdin()), stdout());
    let served = match era {
        Era::Legacy => fanlight_demo::serve_legacy(input, output),
        Era::Modern => fanlight_demo::serve_modern(input, output),
    };
    served.map_err(|error| failure!("the demo server's standard input or output failed: {error}"))
}
