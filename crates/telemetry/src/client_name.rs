//! The client behind a request, as its span names it.

use std::sync::Arc;

use fanlight_protocol::Json;

use crate::text::truncated;

/// Longest name or version of a client, in characters. No option: names are short, and this is one of many in a list.
const LONGEST: usize = 64;

/// The client behind a request: what it says of itself, and whom its credentials have shown. Shared by the spans of its
/// requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientName {
    name: Option<Box<str>>,
    version: Option<Box<str>>,
    principal: Option<Arc<str>>,
}

impl ClientName {
    /// Identified by its `Implementation` object and the name of its principal; `None` if nothing is known.
    #[must_use]
    pub fn of(info: Option<&Json>, principal: Option<&Arc<str>>) -> Option<Arc<Self>> {
        let text = |key| {
            let value = info?.get(key)?;
            Some(Box::<str>::from(truncated(&value.as_str()?, LONGEST)))
        };
        let made = Self {
            name: text("name"),
            version: text("version"),
            principal: principal.cloned(),
        };
        let is_known = made.name.is_some() || made.principal.is_some();
        is_known.then(|| Arc::new(made))
    }

    /// The name that it gives itself.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// The version that it says it has.
    #[must_use]
    pub fn version(&self) -> Option<&str> {
        self.version.as_deref()
    }

    /// Its name and its version, as a person reads them.
    #[must_use]
    pub fn label(&self) -> Option<String> {
        self.name().map(|name| label(name, self.version()))
    }

    /// The name of its principal; `None` if it is not authenticated.
    #[must_use]
    pub fn principal(&self) -> Option<&str> {
        self.principal.as_deref()
    }

    /// Its memory, in bytes; most spans share it.
    pub(crate) fn size(&self) -> usize {
        let text = |text: &Option<Box<str>>| text.as_ref().map_or(0, |text| text.len());
        size_of::<Self>() + text(&self.name) + text(&self.version)
    }
}

/// The name and the version of a client, as a person reads them.
pub(crate) fn label(name: &str, version: Option<&str>) -> String {
    version.map_or_else(|| name.to_owned(), |version| format!("{name} {version}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_is_named_by_what_is_known() {
        let info = Json::literal(r#"{"name":"a\u0062","version":"1.0","title":"x"}"#);
        let (ann, both) = (Arc::from("ann"), ClientName::of(Some(&info), None).unwrap());
        assert_eq!(
            (both.name(), both.version(), both.principal()),
            (Some("ab"), Some("1.0"), None)
        );
        assert_eq!(both.label().as_deref(), Some("ab 1.0"));
        let odd = Json::literal(r#"{"name":7}"#);
        assert_eq!(ClientName::of(Some(&odd), None), None);
        assert_eq!(
            ClientName::of(Some(&odd), Some(&ann)).unwrap().principal(),
            Some("ann")
        );
        assert_eq!(ClientName::of(None, None), None);
        let long = Json::parse(format!(r#"{{"name":"{}"}}"#, "é".repeat(9000)).into(), 8).unwrap();
        assert_eq!(
            ClientName::of(Some(&long), None)
                .unwrap()
                .name()
                .unwrap()
                .chars()
                .count(),
            LONGEST
        );
    }
}
