//! Which changed options take effect only after a restart.

use std::collections::BTreeSet;

use fanlight_config::Config;
use serde_json::{Map, Value};

/// Options that take effect at once, beside the servers. Of others in these sections that servers use too, the servers'
/// part takes effect at once, and the clients' part after a restart: they are named.
const LIVE: [&str; 13] = [
    "admin",
    "allowedHosts",
    "allowedOrigins",
    "auth",
    "endpoints",
    "include",
    "listen",
    "naming",
    "publicUrl",
    "reusePort",
    "socketMode",
    "tls",
    "trustedProxies",
];
/// Sections whose options are looked at one by one.
const SECTIONS: [&str; 2] = ["limits", "timeouts"];
/// Options of `limits` that only listeners, lists and servers use.
const LIVE_LIMITS: [&str; 36] = [
    "authKeys",
    "writeRate",
    "adminPeerSessions",
    "adminSessions",
    "adminSignInFailures",
    "adminConnections",
    "adminFollowers",
    "adminCalls",
    "connections",
    "header",
    "http2Streams",
    "peerConnections",
    "streams",
    "backendSessions",
    "clientExtensions",
    "clientNotifications",
    "invalidOutput",
    "listBytes",
    "listEntries",
    "listGenerations",
    "listPages",
    "listTotalBytes",
    "callServerRequests",
    "pageSize",
    "processLog",
    "processLogKept",
    "processes",
    "recordedContent",
    "resultUris",
    "spareBytes",
    "streamAttempts",
    "taskInputs",
    "taskPollFailures",
    "taskResults",
    "unknownTasks",
    "uri",
];
/// Options of `timeouts` that only listeners, lists and servers use.
const LIVE_TIMEOUTS: [&str; 50] = [
    "adminLists",
    "adminSession",
    "adminSessionIdle",
    "adminSignIn",
    "adminRefresh",
    "adminEvents",
    "http2Ping",
    "firstRequest",
    "header",
    "idleConnection",
    "write",
    "backendIdleConnection",
    "backendResume",
    "backendResumeMax",
    "backendSessionIdle",
    "call",
    "callTotal",
    "configSettle",
    "connect",
    "connectOnCall",
    "delivery",
    "eraRecheck",
    "failedRetry",
    "list",
    "listSettle",
    "listUnannounced",
    "ownMessage",
    "ping",
    "probe",
    "processStop",
    "reconnect",
    "reconnectMax",
    "reconnectOnCall",
    "refusedRequest",
    "sessionEnd",
    "sseRetryMax",
    "sseRetryMin",
    "stableConnection",
    "staleLists",
    "streamOpening",
    "subscribeOnCall",
    "task",
    "taskInput",
    "taskPoll",
    "taskPollMax",
    "taskPollMin",
    "taskResult",
    "tcpProbe",
    "tcpUnacknowledged",
    "unknownName",
];

/// The changed options that take effect after a restart, such as `limits.workers`.
pub(super) fn needed(old: &Config, new: &Config) -> Vec<String> {
    let (before, after) = (shown(old), shown(new));
    let mut changed = BTreeSet::new();
    for (key, value) in &after {
        let earlier = before.get(key);
        match key.as_str() {
            "mcpServers" => {}
            key if LIVE.contains(&key) => {}
            key if SECTIONS.contains(&key) => {
                let live: &[&str] = if key == "limits" { &LIVE_LIMITS } else { &LIVE_TIMEOUTS };
                for (option, value) in value.as_object().into_iter().flatten() {
                    let is_live = live.contains(&option.as_str());
                    if !is_live && earlier.and_then(|earlier| earlier.get(option)) != Some(value) {
                        changed.insert(format!("{key}.{option}"));
                    }
                }
            }
            key => {
                if earlier != Some(value) {
                    changed.insert(key.to_owned());
                }
            }
        }
    }
    // Secrets are shown alike.
    if old.keys != new.keys {
        changed.insert("keys".to_owned());
    }
    changed.into_iter().collect()
}

/// The configuration in force where Fanlight was started with one and has read another since, as it may be shown.
pub(super) fn in_force(started: &Config, new: &Config) -> Map<String, Value> {
    let (before, mut shown) = (shown(started), shown(new));
    for option in needed(started, new) {
        let (section, key) = option.split_once('.').unwrap_or((&option, ""));
        let (Some(old), Some(new)) = (before.get(section), shown.get_mut(section)) else { continue };
        match (old.get(key), new.get_mut(key)) {
            (Some(old), Some(new)) => *new = old.clone(),
            _ => *new = old.clone(),
        }
    }
    shown
}

fn shown(config: &Config) -> Map<String, Value> {
    serde_json::from_str(&config.shown()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn live_options_exist() {
        let all = shown(&Config::default());
        for (section, options) in [("limits", &LIVE_LIMITS[..]), ("timeouts", &LIVE_TIMEOUTS[..])] {
            for option in options {
                assert!(all[section].get(option).is_some(), "{section}.{option}");
            }
        }
        assert!(LIVE.iter().all(|option| all.contains_key(*option)));
    }

    #[test]
    fn only_options_that_cannot_change_are_named() {
        let old = Config::default();
        let mut new = old.clone();
        new.limits.workers += 1;
        new.limits.page_size += 1;
        new.timeouts.call *= 2;
        new.allowed_hosts = vec!["x".into()];
        new.path = "/other".into();
        assert_eq!(needed(&old, &new), ["limits.workers", "path"]);
        let in_force = in_force(&old, &new);
        assert_eq!((&in_force["path"], &in_force["limits"]["workers"]), (&Value::from("/mcp"), &Value::from(0)));
        assert_eq!(
            (&in_force["limits"]["pageSize"], &in_force["allowedHosts"][0]),
            (&Value::from(new.limits.page_size), &Value::from("x"))
        );
    }
}
