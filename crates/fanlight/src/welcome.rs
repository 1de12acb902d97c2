//! What `fanlight run` prints on standard output: its addresses, and the entries for clients.
//!
//! Programs parse the lines that begin with `listening on` and `admin on`, so these do not change.

use std::io::{IsTerminal as _, Write as _};
use std::thread;

use fanlight_config::{Config, ListenAddress, Loaded};

use crate::admin::page;
use crate::demo;
use crate::wiring::scheme;

/// Prints the addresses and, on a terminal, how to connect clients.
pub(crate) fn print(loaded: &Loaded, listen: &ListenAddress, admin: Option<&ListenAddress>) {
    let config = &loaded.config;
    let (path, scheme) = (config.shown_path(), scheme(&config.tls));
    let demo = loaded.path.as_os_str() == demo::ORIGIN;
    let mut text = match listen {
        ListenAddress::Ip(address) => format!("listening on {scheme}://{address}{path}\n"),
        ListenAddress::Unix(_) => format!("listening on {listen}, the endpoint is {path}\n"),
    };
    match (admin, admin.and_then(|admin| page(config, admin))) {
        (Some(ListenAddress::Ip(admin)), Some(page)) => {
            text += &format!("admin on {}://{admin}\nsee it at {page}\n", self::scheme(&config.admin.tls));
        }
        (Some(admin), _) => text += &format!("admin on {admin}\n"),
        (None, _) => {}
    }
    let mut out = std::io::stdout();
    if demo {
        text += "\nNo configuration here, so these are two small servers of Fanlight's own, one of each era:\n\
                 library (2025-11-25) and workshop (2026-07-28). Your own: fanlight run --config mcp.json\n";
    }
    if let Some(url) = url_of_clients(config, listen)
        && (demo || out.is_terminal())
    {
        text += &clients(&url, loaded, demo);
    }
    // A closed standard output is no reason not to serve, nor is one that is full: it may be the pipe of the log.
    let written = move || out.write_all(text.as_bytes()).and_then(|()| out.flush());
    let _ = thread::Builder::new().name("welcome".to_owned()).spawn(written);
}

/// The URL that clients use, where there is one.
fn url_of_clients(config: &Config, listen: &ListenAddress) -> Option<String> {
    let base = match (&config.public_url, listen) {
        (Some(url), _) => url.clone(),
        (None, ListenAddress::Ip(address)) => format!("{}://{address}", scheme(&config.tls)),
        (None, ListenAddress::Unix(_)) => return None,
    };
    Some(base + config.shown_path())
}

fn clients(url: &str, loaded: &Loaded, demo: bool) -> String {
    let program = std::env::current_exe().map_or_else(|_| "fanlight".into(), |path| path.display().to_string());
    let args = if demo {
        "[\"stdio\"]".to_owned()
    } else {
        let path = std::path::absolute(&loaded.path).unwrap_or_else(|_| loaded.path.clone());
        format!("[\"stdio\", \"--config\", {:?}]", path.display().to_string())
    };
    format!(
        "\nPaste into a client's mcp.json (HTTP):\n\
         \x20 {{\"mcpServers\": {{\"fanlight\": {{\"type\": \"http\", \"url\": \"{url}\"}}}}}}\n\
         or, for desktop clients that start servers themselves (stdio):\n\
         \x20 {{\"mcpServers\": {{\"fanlight\": {{\"command\": {program:?}, \"args\": {args}}}}}}}\n\
         Claude Code:  claude mcp add --transport http fanlight {url}\n\
         VS Code:      code --add-mcp '{{\"name\":\"fanlight\",\"type\":\"http\",\"url\":\"{url}\"}}'\n\
         Try it here:  fanlight list    fanlight call <tool> '<json>'\n\n"
    )
}
