//! Changed options that take effect only after a restart.

use std::collections::BTreeSet;

use fanlight_config::{Config, is_live};
use serde_json::{Map, Value};

/// Sections whose options are compared one by one. Some of them concern servers, too: that part
/// takes effect at once, the clients' part after a restart, so they are named.
const SECTIONS: [&str; 2] = ["limits", "timeouts"];

/// The changed options that take effect after a restart, such as `limits.sessions`.
pub(super) fn needed(old: &Config, new: &Config) -> Vec<String> {
    let (before, after) = (masked_config(old), masked_config(new));
    let mut changed = BTreeSet::new();
    for (key, value) in &after {
        let earlier = before.get(key);
        match key.as_str() {
            "mcpServers" => {}
            key if SECTIONS.contains(&key) => {
                for (option, value) in value.as_object().into_iter().flatten() {
                    let is_changed = earlier.and_then(|earlier| earlier.get(option)) != Some(value);
                    if is_changed && !is_live(key, option) {
                        changed.insert(format!("{key}.{option}"));
                    }
                }
            }
            key if is_live("", key) => {}
            key => {
                if earlier != Some(value) {
                    changed.insert(key.to_owned());
                }
            }
        }
    }
    // The shown configuration hides secrets, so compare these directly.
    if old.keys != new.keys {
        changed.insert("keys".to_owned());
    }
    changed.into_iter().collect()
}

/// The shown configuration in force, if Fanlight started with one configuration and has read
/// another since.
pub(super) fn config_in_force(started: &Config, new: &Config) -> Map<String, Value> {
    let (before, mut shown) = (masked_config(started), masked_config(new));
    for option in needed(started, new) {
        let (section, key) = option.split_once('.').unwrap_or((&option, ""));
        let (Some(old), Some(new)) = (before.get(section), shown.get_mut(section)) else {
            continue;
        };
        match (old.get(key), new.get_mut(key)) {
            (Some(old), Some(new)) => *new = old.clone(),
            _ => *new = old.clone(),
        }
    }
    shown
}

fn masked_config(config: &Config) -> Map<String, Value> {
    serde_json::from_str(&config.masked_json()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_options_that_cannot_change_are_named() {
        let old = Config::default();
        let mut new = old.clone();
        new.limits.sessions += 1;
        new.limits.connections += 1;
        new.timeouts.call *= 2;
        new.allowed_hosts = vec!["x".into()];
        new.sse_path = None;
        assert_eq!(needed(&old, &new), ["limits.sessions", "ssePath"]);
        let in_force = config_in_force(&old, &new);
        assert_eq!(
            (&in_force["ssePath"], &in_force["limits"]["sessions"]),
            (&Value::from("/sse"), &Value::from(10_000))
        );
        assert_eq!(
            (
                &in_force["limits"]["connections"],
                &in_force["allowedHosts"][0]
            ),
            (&Value::from(new.limits.connections), &Value::from("x"))
        );
    }
}
