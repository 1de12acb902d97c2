//! `fanlight reload`, `enable`, `disable`, `restart` and `end-session`: changes of a running
//! gateway.

use fanlight_protocol::visible::plain;
use http::StatusCode;
use itertools::Itertools as _;
use serde_json::{Value, json};

use super::Admin;
use super::admin::{elements, text};
use crate::cli::{CommonArgs, ServerArgs, SessionArgs, StatusArgs};
use crate::suggestions::did_you_mean;
use crate::{Failure, Result, out, say};

/// Makes the gateway reload its configuration; fails if it cannot be used.
pub async fn reload(args: &StatusArgs, common: &CommonArgs) -> Result {
    let admin = Admin::find(&args.admin, common).await?;
    let (status, body) = admin.try_post(&["reload"]).await?;
    if args.json && matches!(status, StatusCode::OK | StatusCode::UNPROCESSABLE_ENTITY) {
        out::json(String::from_utf8_lossy(&body).trim_end());
    }
    if status == StatusCode::UNPROCESSABLE_ENTITY {
        let report = admin.json(&body)?;
        let text = text(&report, "text");
        let lines = text
            .trim_end()
            .lines()
            .map(|line| plain(line, 300))
            .join("\n");
        return Err(failure!(
            "the new configuration cannot be used; the previous one stays in force:\n{lines}"
        ));
    }
    let report = admin.json(&admin.expect(status, body)?)?;
    if !args.json {
        show(&report);
    }
    Ok(())
}

fn show(report: &Value) {
    if report["result"].as_str() == Some("unchanged") {
        say!("unchanged");
        return;
    }
    for (key, what) in [
        ("added", "added"),
        ("changed", "changed"),
        ("removed", "removed"),
        ("kept", "unchanged"),
    ] {
        let names = names(&report["servers"][key]);
        if !names.is_empty() {
            say!("{what}: {names}");
        }
    }
    for (option, address) in report["listeners"].as_object().into_iter().flatten() {
        say!(
            "{option}: {}",
            plain(address.as_str().unwrap_or("off"), 100)
        );
    }
    let options = names(&report["needsRestart"]);
    if !options.is_empty() {
        say!("after a restart only: {options}");
    }
    renamed(&report["renamed"])
        .iter()
        .for_each(|line| say!("renamed: {line}"));
    for line in elements(report, "warnings").filter_map(Value::as_str) {
        say!("warning: {}", plain(line, 300));
    }
}

/// The names that clients now see differently, one line each, and how many more there are.
fn renamed(report: &Value) -> Vec<String> {
    let text = |name: &Value, key| plain(text(name, key), 100);
    let more = report["more"].as_u64().filter(|more| *more > 0);
    let lines = elements(report, "names")
        .map(|name| format!("{} → {}", text(name, "from"), text(name, "to")));
    lines
        .chain(more.map(|more| format!("{more} more")))
        .collect()
}

/// Switches a server on or off, or restarts it.
pub async fn change_server(args: &ServerArgs, common: &CommonArgs, action: &str) -> Result {
    let admin = Admin::find(&args.admin, common).await?;
    match admin.post(&["servers", &args.server, action]).await {
        Err(failure) if failure.is_not_found() => {
            return Err(no_such_server(&admin, &args.server).await);
        }
        answer => answer?,
    };
    if args.json {
        out::json(&json!({ "action": action, "server": args.server }).to_string());
    } else {
        say!("{action}: {}", plain(&args.server, 100));
    }
    Ok(())
}

/// The failure for an unknown server. It names the known servers, or says that this one is switched
/// off.
pub(super) async fn no_such_server(admin: &Admin, wanted: &str) -> Failure {
    // Disabled servers exist only in the configuration.
    let config = match admin.get(&["config"], &[]).await {
        Ok(answer) => admin.json(&answer).unwrap_or_default(),
        Err(failure) => return failure,
    };
    let servers = config["mcpServers"].as_object();
    let known = servers
        .into_iter()
        .flatten()
        .map(|(name, _)| name.as_str())
        .collect_vec();
    if known.contains(&wanted) {
        let name = plain(wanted, 100);
        return usage!(
            "the server {name} is switched off; `fanlight enable {name}` switches it on"
        );
    }
    let meant = did_you_mean(wanted, known.iter().copied());
    let all = known.iter().map(|name| plain(name, 60)).join(", ");
    let help = if meant.is_empty() {
        format!("; it has {all}")
    } else {
        meant
    };
    usage!(
        "the gateway at {} has no server {:?}{help}",
        admin.display_name(),
        plain(wanted, 100)
    )
}

/// Ends the session of a client.
pub async fn end_session(args: &SessionArgs, common: &CommonArgs) -> Result {
    let admin = Admin::find(&args.admin, common).await?;
    admin.post(&["sessions", &args.digest, "end"]).await?;
    if args.json {
        out::json(&json!({ "action": "end-session", "session": args.digest }).to_string());
    } else {
        say!("ended: {}", plain(&args.digest, 100));
    }
    Ok(())
}

fn names(list: &Value) -> String {
    let names = list.as_array().into_iter().flatten();
    let names = names.filter_map(Value::as_str);
    names.map(|name| plain(name, 100)).join(", ")
}
