//! The capabilities that Fanlight declares when it reads lists for all clients.
//!
//! Servers hide entries that a client cannot use, such as tools that only an app shows. So Fanlight
//! declares every extension that it knows, and those that its clients declare when they ask for
//! lists.

use std::collections::HashSet;

use fanlight_canonical::CallContext;
use fanlight_protocol::Json;
use fanlight_protocol::json::{ObjectBuilder, union};
use parking_lot::Mutex;

/// The longest extension identifier, in bytes. No option: an identifier is a domain and a word.
const LONGEST: usize = 128;

/// The capabilities that Fanlight declares to servers.
pub(super) struct ListCapabilities(Mutex<Declared>);

struct Declared {
    capabilities: Json,
    /// The extensions in `capabilities` that were added for clients.
    of_clients: HashSet<String>,
}

impl Default for ListCapabilities {
    fn default() -> Self {
        let capabilities = CallContext::list_capabilities();
        Self(Mutex::new(Declared {
            capabilities,
            of_clients: HashSet::new(),
        }))
    }
}

impl ListCapabilities {
    /// The `ClientCapabilities` object.
    pub(super) fn current(&self) -> Json {
        self.0.lock().capabilities.clone()
    }

    /// Adds the extensions of a client with these capabilities; returns whether any is new.
    ///
    /// Their settings are left out, because other clients must not see them. At most `most`
    /// extensions are added, because each new one makes Fanlight read all lists again.
    pub(super) fn add(&self, client: &Json, most: usize) -> bool {
        let Some(extensions) = client.get("extensions").filter(Json::is_object) else {
            return false;
        };
        let mut declared = self.0.lock();
        let known = declared
            .capabilities
            .get("extensions")
            .unwrap_or_else(Json::empty_object);
        let mut new = ObjectBuilder::new();
        for member in extensions.members() {
            let Some(id) = member.name(&extensions).filter(|id| is_identifier(id)) else {
                continue;
            };
            let is_declared = extensions
                .value_at(member.value)
                .is_some_and(|settings| settings.is_object());
            if is_declared && known.peek(&id).is_none() && declared.of_clients.len() < most {
                new.member(&id, &Json::empty_object());
                declared.of_clients.insert(id);
            }
        }
        if new.is_empty() {
            return false;
        }
        let added = ObjectBuilder::new()
            .member("extensions", &new.finish())
            .finish();
        declared.capabilities = union(&declared.capabilities, &added);
        true
    }
}

/// Whether `id` has the form of SEP-2133: a prefix that names the vendor, and a name.
fn is_identifier(id: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | '/');
    id.len() <= LONGEST && id.contains('/') && id.chars().all(fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extensions_of_clients_are_declared_without_their_settings() {
        let all = ListCapabilities::default();
        let before = all.current();
        assert!(
            before
                .get("extensions")
                .unwrap()
                .get("io.modelcontextprotocol/ui")
                .is_some()
        );
        for nothing in [
            "{}",
            r#"{"extensions":7}"#,
            r#"{"extensions":{"io.modelcontextprotocol/ui":{}}}"#,
            r#"{"extensions":{"plain":{},"x/null":null,"x/ y":{}}}"#,
        ] {
            assert!(!all.add(&Json::literal(nothing), 32), "{nothing}");
        }
        assert_eq!(all.current(), before);
        let client = Json::literal(r#"{"extensions":{"com.example/x":{"secret":1}}}"#);
        assert!(all.add(&client, 32) && !all.add(&client, 32));
        let extensions = all.current().get("extensions").unwrap();
        assert_eq!(extensions.get("com.example/x").unwrap().as_text(), "{}");
        assert!(extensions.get("io.modelcontextprotocol/tasks").is_some());
    }

    #[test]
    fn extensions_of_clients_are_bounded() {
        let all = ListCapabilities::default();
        let news = (0..1000).filter(|n| {
            let text = format!(
                r#"{{"extensions":{{"x/{n}":{{}},"y/{}":{{}}}}}}"#,
                "y".repeat(LONGEST)
            );
            all.add(&Json::parse(text.into(), 8).unwrap(), 32)
        });
        assert_eq!(news.count(), 32);
        assert!(all.current().bytes().len() < 2000);
    }
}
