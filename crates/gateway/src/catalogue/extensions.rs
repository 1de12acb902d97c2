//! What the requests declare by which lists are read for all clients.
//!
//! Servers hide what a client cannot use, such as tools that only an app shows. So these requests declare every
//! extension that Fanlight knows, and those that clients declare who ask for lists.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use fanlight_canonical::CallContext;
use fanlight_protocol::Json;
use fanlight_protocol::json::{ObjectBuilder, union};

/// The longest identifier, in bytes. No option: identifiers are names of domains with a word.
const LONGEST: usize = 128;

/// The capabilities that are declared.
pub(super) struct ListCapabilities(Mutex<Declared>);

struct Declared {
    capabilities: Json,
    /// The extensions in it that clients have brought.
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
        self.lock().capabilities.clone()
    }

    /// Adds the extensions of a client with these capabilities; says whether any is new. Settings are left out: those
    /// of one client are no other's business. At most `most` extensions of clients are declared, since each new one has all
    /// lists read again.
    pub(super) fn add(&self, client: &Json, most: usize) -> bool {
        let Some(extensions) = client.get("extensions").filter(Json::is_object) else {
            return false;
        };
        let mut declared = self.lock();
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
                .at(member.value)
                .is_some_and(|settings| settings.is_object());
            if is_declared && known.peek(&id).is_none() && declared.of_clients.len() < most {
                new.member(&id, &Json::empty_object());
                declared.of_clients.insert(id);
            }
        }
        if new.is_empty() {
            return false;
        }
        let mut added = ObjectBuilder::new();
        added.member("extensions", &new.finish());
        declared.capabilities = union(&declared.capabilities, &added.finish());
        true
    }

    fn lock(&self) -> MutexGuard<'_, Declared> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// SEP-2133: a prefix that names the vendor, and a name.
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
