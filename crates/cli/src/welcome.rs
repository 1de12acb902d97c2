//! The text that `fanlight run` prints on standard output: its addresses, and the entries for
//! clients.
//!
//! Programs parse the lines that begin with `listening on` and `admin on`, so these do not change.

use std::io::{IsTerminal as _, Write as _};
use std::thread;

use fanlight_config::scheme;
use fanlight_config::{Config, ListenAddress, Loaded};

use crate::configuration::DEFAULT_FILES;
use crate::connect::endpoint_url;
use crate::invocation::Invocation;
use crate::{CommonArgs, demo};

/// The addresses of a gateway.
pub struct Addresses<'a> {
    /// The clients' address.
    pub clients: &'a ListenAddress,
    /// The operators' address, if there is one.
    pub operators: Option<&'a ListenAddress>,
    /// The operators' address in the configuration.
    pub configured_operators: Option<&'a ListenAddress>,
}

/// Prints the addresses and, on a terminal, how to connect clients.
pub fn print(loaded: &Loaded, addresses: &Addresses<'_>, common: &CommonArgs) {
    let config = &loaded.config;
    let (path, scheme) = (config.shown_path(), scheme(&config.tls));
    let is_demo = demo::is_demo(loaded);
    let listen = addresses.clients;
    let mut out = std::io::stdout();
    let mut text = if is_demo {
        demo_notice(common)
    } else {
        String::new()
    };
    text += &match listen {
        ListenAddress::Ip(address) => format!("listening on {scheme}://{address}{path}\n"),
        ListenAddress::Unix(_) => format!("listening on {listen}, the endpoint is {path}\n"),
    };
    match (
        addresses.operators,
        addresses.operators.and_then(|admin| page(config, admin)),
    ) {
        (Some(ListenAddress::Ip(admin)), Some(page)) => {
            text += &format!(
                "admin on {}://{admin}\nsee it at {page}\n",
                self::scheme(&config.admin.tls)
            );
        }
        (Some(admin), _) => text += &format!("admin on {admin}\n"),
        (None, _) => {}
    }
    if is_demo || out.is_terminal() {
        let invocation = Invocation::new(common);
        if let Some(url) = endpoint_url(config, listen) {
            text += &clients(&url, &invocation);
        }
        text += &commands(&invocation, addresses);
    }
    // A closed or full standard output does not prevent serving; it may be the pipe of the log.
    let written = move || out.write_all(text.as_bytes()).and_then(|()| out.flush());
    let _ = thread::Builder::new()
        .name("welcome".to_owned())
        .spawn(written);
}

/// A notice that nobody who expects their own servers can overlook.
fn demo_notice(common: &CommonArgs) -> String {
    let line = "=".repeat(72);
    let why = if common.demo {
        String::new()
    } else {
        format!(
            "This folder has no configuration ({}).\n",
            DEFAULT_FILES.join(", ")
        )
    };
    format!(
        "{line}\nDEMO: these are not your servers.\n{why}Two small servers of Fanlight's own are running, one of each era: \
         library\n(2025-11-25) and workshop (2026-07-28). Your own: fanlight run --config FILE\n{line}\n"
    )
}

fn clients(url: &str, invocation: &Invocation) -> String {
    let program = std::env::current_exe()
        .map_or_else(|_| "fanlight".into(), |path| path.display().to_string());
    let arguments = serde_json::json!(invocation.stdio_arguments());
    let entry = serde_json::json!({ "command": program, "args": arguments });
    format!(
        "\nPaste into a client's mcp.json (HTTP):\n\
         \x20 {{\"mcpServers\": {{\"fanlight\": {{\"type\": \"http\", \"url\": \"{url}\"}}}}}}\n\
         or, for desktop clients that start servers themselves (stdio):\n\
         \x20 {{\"mcpServers\": {{\"fanlight\": {entry}}}}}\n\
         Claude Code:  claude mcp add --transport http fanlight {url}\n\
         VS Code:      code --add-mcp '{{\"name\":\"fanlight\",\"type\":\"http\",\"url\":\"{url}\"}}'\n"
    )
}

/// Commands for this gateway and its configuration, as printed.
fn commands(invocation: &Invocation, addresses: &Addresses<'_>) -> String {
    let mut text = format!(
        "\nTry it here:  {}\n              {}\n",
        invocation.command("list"),
        invocation.command("call TOOL '{}'")
    );
    if let Some(operators) = addresses.operators {
        let differs = (addresses.configured_operators != addresses.operators).then_some(operators);
        text += &format!(
            "Watch it:     {}\n",
            invocation.admin_command("status", differs)
        );
        text += &format!(
            "              {}\n",
            invocation.admin_command("traces", differs)
        );
    }
    text + "\n"
}

/// The URL of the operators' page, if a browser can reach it.
pub fn page(config: &Config, address: &ListenAddress) -> Option<String> {
    let address = address.ip()?;
    let host = match address.ip() {
        ip if ip.is_unspecified() => "127.0.0.1".to_owned(),
        std::net::IpAddr::V6(ip) => format!("[{ip}]"),
        std::net::IpAddr::V4(ip) => ip.to_string(),
    };
    Some(format!(
        "{}://{host}:{}/ui",
        scheme(&config.admin.tls),
        address.port()
    ))
}
