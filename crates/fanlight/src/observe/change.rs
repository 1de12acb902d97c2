//! `fanlight reload`, `enable`, `disable` and `restart`: changes of a running gateway.

use reqwest::StatusCode;
use serde_json::Value;

use super::Admin;
use crate::cli::{AdminArgs, ServerArgs, SessionArgs};
use crate::failure::Failure;
use crate::inspect::plain;
use crate::out::say;

/// Has the configuration read again; fails if it cannot be used.
pub(crate) async fn reload(args: &AdminArgs) -> Result<(), Failure> {
    let admin = Admin::new(args)?;
    let (status, body) = admin.post(&["api", "reload"]).await?;
    if status == StatusCode::UNPROCESSABLE_ENTITY {
        let report = admin.json(&body)?;
        let text = report.get("text").and_then(Value::as_str).unwrap_or_default();
        let lines: Vec<_> = text.trim_end().lines().map(|line| plain(line, 300)).collect();
        return Err(Failure::other(format!(
            "the configuration cannot be used, the earlier one stays in force:\n{}",
            lines.join("\n")
        )));
    }
    let report = admin.json(&admin.expect(status, StatusCode::OK, body)?)?;
    if report.get("result").and_then(Value::as_str) == Some("unchanged") {
        say!("unchanged");
        return Ok(());
    }
    for (key, what) in [("added", "added"), ("changed", "changed"), ("removed", "removed"), ("kept", "unchanged")] {
        let names = names(report.get("servers").and_then(|servers| servers.get(key)));
        if !names.is_empty() {
            say!("{what}: {names}");
        }
    }
    for (option, address) in report.get("listeners").and_then(Value::as_object).into_iter().flatten() {
        say!("{option}: {}", plain(address.as_str().unwrap_or("off"), 100));
    }
    let options = names(report.get("needsRestart"));
    if !options.is_empty() {
        say!("after a restart only: {options}");
    }
    Ok(())
}

/// Switches a server on or off, or restarts it.
pub(crate) async fn change_server(args: &ServerArgs, action: &str) -> Result<(), Failure> {
    let admin = Admin::new(&args.admin)?;
    let (status, body) = admin.post(&["api", "servers", &args.server, action]).await?;
    admin.expect(status, StatusCode::OK, body)?;
    say!("{action}: {}", plain(&args.server, 100));
    Ok(())
}

/// Ends the session of a client.
pub(crate) async fn end_session(args: &SessionArgs) -> Result<(), Failure> {
    let admin = Admin::new(&args.admin)?;
    let (status, body) = admin.post(&["api", "sessions", &args.digest, "end"]).await?;
    admin.expect(status, StatusCode::OK, body)?;
    say!("ended: {}", plain(&args.digest, 100));
    Ok(())
}

fn names(list: Option<&Value>) -> String {
    let names = list.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    names.map(|name| plain(name, 100)).collect::<Vec<_>>().join(", ")
}
