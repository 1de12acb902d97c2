//! The outcome of a reload, as the log, the API and the command line show it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use fanlight_config::{Config, ConfigErrors, ConfigFile};
use serde_json::{Map, Value, json};
use tracing::{info, warn};

use super::listeners::Moved;
use crate::connect::Target;
use crate::failure::Unusable;
use crate::servers::Difference;
use crate::shown_names::ChangedNames;

/// Why the configuration was read again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trigger {
    /// SIGHUP.
    Signal,
    /// A file has changed.
    Files,
    /// A request to the API.
    Api,
    /// The time for which a secret is kept is over.
    Secrets,
}

impl fmt::Display for Trigger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Signal => "SIGHUP",
            Self::Files => "changed files",
            Self::Api => "API",
            Self::Secrets => "secrets",
        })
    }
}

/// The outcome of a reload.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    trigger: Trigger,
    at: SystemTime,
    result: Result,
}

/// What a configuration has changed that was put in force.
#[derive(Clone, Debug)]
pub(super) struct Applied {
    pub(super) servers: Difference,
    /// Listeners that listen somewhere else now.
    pub(super) moved: Vec<Moved>,
    /// Changed options that take effect after a restart.
    pub(super) needs_restart: Vec<String>,
    /// Names that clients see differently.
    pub(super) names: ChangedNames,
    /// What is said of patterns that match nothing.
    pub(super) unmatched: Vec<String>,
}

#[derive(Clone, Debug)]
enum Result {
    Applied(Applied),
    Unchanged,
    Failed {
        /// Laid out for a terminal.
        text: String,
        problems: Value,
    },
}

impl Outcome {
    pub(super) fn applied(trigger: Trigger, applied: Applied) -> Self {
        Self {
            trigger,
            at: SystemTime::now(),
            result: Result::Applied(applied),
        }
    }

    pub(super) fn unchanged(trigger: Trigger) -> Self {
        Self {
            trigger,
            at: SystemTime::now(),
            result: Result::Unchanged,
        }
    }

    pub(super) fn failed(trigger: Trigger, unusable: &Unusable) -> Self {
        let (text, problems) = match unusable {
            Unusable::Errors(errors) => (errors.render(false), problems(errors)),
            Unusable::Other(message) => (message.clone(), json!([{ "message": message }])),
        };
        Self {
            trigger,
            at: SystemTime::now(),
            result: Result::Failed { text, problems },
        }
    }

    pub(crate) fn is_failed(&self) -> bool {
        matches!(self.result, Result::Failed { .. })
    }

    /// The problems, laid out for a terminal; empty without any.
    pub(super) fn text(&self) -> &str {
        match &self.result {
            Result::Failed { text, .. } => text.trim_end(),
            _ => "",
        }
    }

    pub(super) fn log(&self, generation: u64) {
        let trigger = self.trigger;
        let Result::Applied(Applied {
            servers,
            needs_restart,
            names,
            unmatched,
            ..
        }) = &self.result
        else {
            return info!(%trigger, generation, "configuration reloaded: unchanged");
        };
        let Difference {
            added,
            changed,
            removed,
            kept,
        } = servers;
        info!(%trigger, generation, ?added, ?changed, ?removed, kept = kept.len(), "configuration reloaded");
        if !needs_restart.is_empty() {
            warn!(options = ?needs_restart, "changed options take effect after a restart");
        }
        names.log();
        unmatched.iter().for_each(|line| warn!("{line}"));
    }

    /// For the API.
    pub(crate) fn to_json(&self) -> Value {
        let mut object = Map::new();
        let mut add = |key: &str, value: Value| object.insert(key.to_owned(), value);
        add("atMs", moment(self.at));
        add("trigger", json!(self.trigger.to_string()));
        match &self.result {
            Result::Applied(Applied {
                servers,
                moved,
                needs_restart,
                names,
                unmatched,
            }) => {
                let Difference {
                    added,
                    changed,
                    removed,
                    kept,
                } = servers;
                add("result", json!("applied"));
                add(
                    "servers",
                    json!({"added": added, "changed": changed, "removed": removed, "kept": kept}),
                );
                let address = |moved: &Moved| json!(moved.to.as_ref().map(ToString::to_string));
                let moved = moved
                    .iter()
                    .map(|moved| (moved.option.to_owned(), address(moved)));
                add("listeners", Value::Object(moved.collect()));
                add("needsRestart", json!(needs_restart));
                add("renamed", names.to_json());
                add("warnings", json!(unmatched));
            }
            Result::Unchanged => drop(add("result", json!("unchanged"))),
            Result::Failed { text, problems } => {
                add("result", json!("failed"));
                add("problems", problems.clone());
                add("text", json!(text));
            }
        }
        Value::Object(object)
    }
}

fn problems(errors: &ConfigErrors) -> Value {
    let problem = |problem: &fanlight_config::Problem| {
        let position = problem.position();
        json!({
            "file": problem.file().display().to_string(),
            "line": position.map(|position| position.line),
            "column": position.map(|position| position.column),
            "message": problem.message(),
            "help": problem.help(),
            "source": problem.source_line(),
        })
    };
    errors.problems().iter().map(problem).collect()
}

/// The configuration in force and how it came to be.
#[derive(Clone, Debug)]
pub(crate) struct State {
    /// Incremented by each configuration that differs from the one before.
    pub(super) generation: u64,
    /// When it came into force.
    pub(super) since: SystemTime,
    /// The configuration with what was changed at run time, without secrets.
    pub(super) config: Map<String, Value>,
    /// The same as it is in force.
    pub(super) effective: Arc<Config>,
    pub(super) files: Vec<ConfigFile>,
    /// The latest reading after the start.
    pub(super) last: Option<Outcome>,
    pub(super) switched: BTreeMap<String, bool>,
    /// Where clients connect.
    pub(super) endpoint: Arc<str>,
    /// How clients are set up to connect.
    pub(super) target: Target,
}

impl State {
    pub(super) fn first(
        config: Map<String, Value>,
        effective: &Config,
        files: &[ConfigFile],
        since: SystemTime,
    ) -> Self {
        let (files, switched) = (files.to_vec(), BTreeMap::new());
        Self {
            generation: 1,
            since,
            config,
            effective: Arc::new(effective.clone()),
            files,
            last: None,
            switched,
            endpoint: Arc::default(),
            target: Target::default(),
        }
    }

    /// Where clients connect.
    pub(crate) fn endpoint(&self) -> Arc<str> {
        Arc::clone(&self.endpoint)
    }

    /// How clients are set up to connect.
    pub(crate) fn target(&self) -> &Target {
        &self.target
    }

    /// The configuration, with the state of reloading as the member `reload`, as JSON. `unmatched` is said of its patterns.
    pub(crate) fn to_json(&self, unmatched: &[String]) -> String {
        let mut shown = self.config.clone();
        let switched = |to: bool| -> Vec<&String> {
            self.switched
                .iter()
                .filter(|(_, enabled)| **enabled == to)
                .map(|(name, _)| name)
                .collect()
        };
        shown.insert(
            "reload".to_owned(),
            json!({
                "generation": self.generation,
                "sinceMs": moment(self.since),
                "files": self.files.iter().map(|file| file.path.display().to_string()).collect::<Vec<_>>(),
                "last": self.last.as_ref().map(Outcome::to_json),
                "warnings": unmatched,
                "atRunTime": {"enabled": switched(true), "disabled": switched(false)},
            }),
        );
        format!("{:#}", Value::Object(shown))
    }
}

fn moment(at: SystemTime) -> Value {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    json!(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
