//! The name and version of a request's client, for its span.

use std::sync::Arc;

use fanlight_protocol::Json;

use crate::text::truncated;

/// The limit of a client's name or version, in characters. There is no option: names are short, and
/// a list shows many of them.
const LONGEST: usize = 64;

/// The client of a request: the name and version that it gives, and its principal. The spans of its
/// requests share one value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientName {
    name: Option<Box<str>>,
    version: Option<Box<str>>,
    principal: Option<Arc<str>>,
}

impl ClientName {
    /// The client with this `Implementation` object and this principal's name. `None` if nothing is
    /// known.
    pub fn new(info: Option<&Json>, principal: Option<&Arc<str>>) -> Option<Arc<Self>> {
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

    /// The name that the client gives.
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// The version that the client gives.
    pub fn version(&self) -> Option<&str> {
        self.version.as_deref()
    }

    /// Name and version in one text for people.
    pub fn label(&self) -> Option<String> {
        self.name().map(|name| label(name, self.version()))
    }

    /// The name of the client's principal. `None` if the client is not authenticated.
    pub fn principal(&self) -> Option<&str> {
        self.principal.as_deref()
    }

    /// The memory of this value in bytes, although most spans share it.
    pub(crate) fn size(&self) -> usize {
        let text = |text: &Option<Box<str>>| text.as_ref().map_or(0, |text| text.len());
        size_of::<Self>() + text(&self.name) + text(&self.version)
    }
}

/// Name and version of a client in one text for people.
pub(crate) fn label(name: &str, version: Option<&str>) -> String {
    version.map_or_else(|| name.to_owned(), |version| format!("{name} {version}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_is_named_by_what_is_known() {
        let info = Json::literal(r#"{"name":"a\u0062","version":"1.0","title":"x"}"#);
        let (ann, both) = (
            Arc::from("ann"),
            ClientName::new(Some(&info), None).unwrap(),
        );
        assert_eq!(
            (both.name(), both.version(), both.principal()),
            (Some("ab"), Some("1.0"), None)
        );
        assert_eq!(both.label().as_deref(), Some("ab 1.0"));
        let odd = Json::literal(r#"{"name":7}"#);
        assert_eq!(ClientName::new(Some(&odd), None), None);
        assert_eq!(
            ClientName::new(Some(&odd), Some(&ann)).unwrap().principal(),
            Some("ann")
        );
        assert_eq!(ClientName::new(None, None), None);
        let long = Json::parse(format!(r#"{{"name":"{}"}}"#, "é".repeat(9000)).into(), 8).unwrap();
        assert_eq!(
            ClientName::new(Some(&long), None)
                .unwrap()
                .name()
                .unwrap()
                .chars()
                .count(),
            LONGEST
        );
    }
}
