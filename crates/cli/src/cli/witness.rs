//! The command line of `fanlight witness`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

#[derive(Debug, Args)]
pub struct WitnessArgs {
    /// The URL of a running gateway, which gets the key or access token in FANLIGHT_TOKEN
    #[arg(long, value_name = "URL", requires = "upstream")]
    pub url: Option<String>,
    /// The port of this machine at which that gateway expects its server, at the path /mcp
    #[arg(long, value_name = "PORT", requires = "url")]
    pub upstream: Option<u16>,
    /// The time to wait until a gateway is ready
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = super::trace_filters::duration)]
    pub ready: Duration,
    /// Write a badge with the result, as SVG, to this file
    #[arg(long, value_name = "FILE")]
    pub badge: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// The command that starts the gateway. {url}, {url2}, {command} and {command2} stand for the
    /// servers behind it, {config} for an mcp.json with them, {port} for the port to listen on.
    /// Without {port}, the gateway speaks over its standard input and output
    #[arg(
        last = true,
        value_name = "COMMAND",
        required_unless_present = "url",
        conflicts_with = "url"
    )]
    pub command: Vec<String>,
}
