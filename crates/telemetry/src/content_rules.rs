//! The rules for which calls keep their content, and which content is exported.

use std::collections::HashMap;
use std::time::SystemTime;

use parking_lot::{Mutex, RwLock};

use crate::content::{Choice, Level};

/// The limit of open windows. A new one replaces the oldest.
const WINDOWS: usize = 64;

/// The content that the configuration allows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContentSettings {
    /// The level where neither the server nor the endpoint has one of its own.
    pub level: Level,
    /// Whether somebody has chosen that level. Otherwise content stays in memory.
    pub is_chosen: bool,
    /// The servers with levels of their own, by name.
    pub servers: HashMap<String, Level>,
    /// The endpoints with levels of their own, by path. The path of the default one is empty.
    pub endpoints: HashMap<String, Level>,
}

/// The calls whose content an operator keeps for a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContentScope {
    /// All calls.
    All,
    /// The calls to a server.
    Server(String),
    /// The calls through an endpoint, by its path.
    Endpoint(String),
}

/// A time during which content is kept in addition to the configuration.
#[derive(Clone, Debug)]
pub struct ContentWindow {
    /// The calls.
    pub scope: ContentScope,
    /// The end of the time.
    pub until: SystemTime,
}

/// The rules in force.
#[derive(Debug)]
pub(crate) struct ContentRules {
    settings: RwLock<ContentSettings>,
    windows: Mutex<Vec<ContentWindow>>,
    /// The limit of the bytes that one call keeps.
    pub(crate) most: usize,
}

impl ContentRules {
    pub(crate) fn new(settings: ContentSettings, most: usize) -> Self {
        Self {
            settings: RwLock::new(settings),
            windows: Mutex::default(),
            most,
        }
    }

    pub(crate) fn set(&self, settings: ContentSettings) {
        *self.settings.write() = settings;
    }

    /// Opens a window. It replaces an open one of the same calls. Returns false if the server or
    /// endpoint has a level of its own, which holds against a window.
    pub(crate) fn open(&self, window: ContentWindow) -> bool {
        let settings = self.settings.read();
        let has_own = match &window.scope {
            ContentScope::All => false,
            ContentScope::Server(name) => settings.servers.contains_key(name),
            ContentScope::Endpoint(path) => settings.endpoints.contains_key(path),
        };
        drop(settings);
        if has_own {
            return false;
        }
        let (mut windows, now) = (self.windows.lock(), SystemTime::now());
        windows.retain(|one| one.scope != window.scope && one.until > now);
        if windows.len() >= WINDOWS {
            windows.remove(0);
        }
        if window.until > now {
            windows.push(window);
        }
        true
    }

    pub(crate) fn settings(&self) -> ContentSettings {
        self.settings.read().clone()
    }

    pub(crate) fn windows(&self) -> Vec<ContentWindow> {
        let (mut windows, now) = (self.windows.lock(), SystemTime::now());
        windows.retain(|one| one.until > now);
        windows.clone()
    }

    /// The decision about a call to a server through an endpoint.
    pub(crate) fn choose(&self, server: &str, endpoint: &str) -> Choice {
        let settings = self.settings.read();
        // The narrower of both holds, also against an operator.
        let own = [
            settings.servers.get(server),
            settings.endpoints.get(endpoint),
        ];
        if let Some(level) = own.into_iter().flatten().copied().min() {
            let (kept, exported) = (level, level);
            return Choice { kept, exported };
        }
        let exported = if settings.is_chosen {
            settings.level
        } else {
            Level::Off
        };
        let kept = if settings.level < Level::On && self.is_within_window(server, endpoint) {
            Level::On
        } else {
            settings.level
        };
        Choice { kept, exported }
    }

    /// The decision about a call that reaches no server. It may have been meant for any, so the
    /// narrowest level holds.
    pub(crate) fn choose_unreached(&self, endpoint: &str) -> Choice {
        let of_servers = self.settings.read().servers.values().copied().min();
        let level = of_servers.unwrap_or(Level::On);
        self.choose("", endpoint).narrower(Choice {
            kept: level,
            exported: level,
        })
    }

    fn is_within_window(&self, server: &str, endpoint: &str) -> bool {
        let windows = self.windows.lock();
        let is_of_call = |window: &&ContentWindow| match &window.scope {
            ContentScope::All => true,
            ContentScope::Server(name) => name == server,
            ContentScope::Endpoint(path) => path == endpoint,
        };
        let mut of_call = windows.iter().filter(is_of_call).peekable();
        // Without windows no clock is read.
        of_call.peek().is_some() && {
            let now = SystemTime::now();
            of_call.any(|window| window.until > now)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn rules(level: Level, is_chosen: bool) -> ContentRules {
        let endpoints = HashMap::from([("/mcp/quiet".to_owned(), Level::Errors)]);
        let servers = [("on", Level::On), ("off", Level::Off)];
        let servers = servers.map(|(name, level)| (name.to_owned(), level)).into();
        let settings = ContentSettings {
            level,
            is_chosen,
            servers,
            endpoints,
        };
        ContentRules::new(settings, 1 << 20)
    }

    fn choice(kept: Level, exported: Level) -> Choice {
        Choice { kept, exported }
    }

    #[test]
    fn narrower_level_of_server_and_endpoint_overrides_the_general_one() {
        use Level::{Errors, Off, On};
        let auto = rules(On, false);
        assert_eq!(auto.choose("a", "/mcp"), choice(On, Off));
        assert_eq!(auto.choose("on", "/mcp"), choice(On, On));
        assert_eq!(auto.choose("off", "/mcp"), choice(Off, Off));
        assert_eq!(auto.choose("on", "/mcp/quiet"), choice(Errors, Errors));
        assert_eq!(auto.choose("off", "/mcp/quiet"), choice(Off, Off));
        assert_eq!(
            rules(Errors, true).choose("a", "/mcp"),
            choice(Errors, Errors)
        );
        let several = choice(On, On).narrower(choice(Errors, Off));
        assert_eq!(several, choice(Errors, Off));
    }

    #[test]
    fn call_without_a_server_keeps_what_every_server_would() {
        use Level::{Errors, Off, On};
        let of_servers = rules(On, true);
        assert_eq!(of_servers.choose_unreached("/mcp"), choice(Off, Off));
        for (level, is_chosen, endpoint, expected) in [
            (On, true, "/mcp", choice(On, On)),
            (On, false, "/mcp", choice(On, Off)),
            (On, true, "/mcp/quiet", choice(Errors, Errors)),
            (Off, true, "/mcp", choice(Off, Off)),
        ] {
            let mut settings = rules(level, is_chosen).settings();
            settings.servers.remove("off");
            let rules = ContentRules::new(settings, 1 << 20);
            assert_eq!(rules.choose_unreached(endpoint), expected);
        }
    }

    #[test]
    fn window_keeps_content_in_memory_until_it_ends_but_not_against_own_levels() {
        use Level::{Errors, Off, On};
        let off = rules(Off, true);
        let until = |after| SystemTime::now() + Duration::from_secs(after);
        let open = |scope: ContentScope, until| off.open(ContentWindow { scope, until });
        let of_a = || ContentScope::Server("a".to_owned());
        assert!(open(of_a(), until(60)) && open(of_a(), until(90)));
        assert!(!open(ContentScope::Server("off".to_owned()), until(60)));
        assert_eq!(off.windows().len(), 1);
        assert_eq!(off.choose("a", "/mcp"), choice(On, Off));
        assert_eq!(off.choose("off", "/mcp"), choice(Off, Off));
        assert_eq!(off.choose("a", "/mcp/quiet"), choice(Errors, Errors));
        assert_eq!(off.choose("b", "/mcp"), choice(Off, Off));
        open(of_a(), SystemTime::UNIX_EPOCH);
        assert!(off.windows().is_empty());
        open(ContentScope::Endpoint("/mcp/x".to_owned()), until(60));
        assert_eq!(off.choose("b", "/mcp/x"), choice(On, Off));
        open(ContentScope::All, until(60));
        assert_eq!(off.choose("b", "/mcp"), choice(On, Off));
    }
}
