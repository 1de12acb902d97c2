//! Unambiguous JSON from issuers and their tokens: two readers cannot interpret it differently.

use std::collections::HashSet;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use fanlight_protocol::Json;
use fanlight_protocol::json::Kind;

/// The limit of nesting. Claims have two or three levels.
const NESTING: usize = 16;

/// The object in `text`; `None` if it is not an object, or if an object in it repeats a member (RFC
/// 7515, 4; RFC 7519, 4).
pub(crate) fn object(text: impl Into<Bytes>) -> Option<Json> {
    let json = Json::parse(text.into(), NESTING).ok()?;
    (json.is_object() && is_distinct(&json)).then_some(json)
}

/// Whether no object repeats a member.
fn is_distinct(json: &Json) -> bool {
    match json.kind() {
        Kind::Object => {
            let mut names = HashSet::new();
            json.members().all(|member| {
                member.name(json).is_some_and(|name| names.insert(name))
                    && is_distinct(&json.slice(member.value))
            })
        }
        Kind::Array => json
            .elements()
            .all(|element| is_distinct(&json.slice(element))),
        _ => true,
    }
}

/// Decodes base64url without padding. Each byte sequence has only one encoded form.
pub(crate) fn base64url(text: &str) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(text).ok()
}

/// The texts of a member that is a text or an array of texts; `None` for anything else.
pub(crate) fn texts(value: &Json) -> Option<Vec<String>> {
    let owned = |value: &Json| value.as_str().map(std::borrow::Cow::into_owned);
    match value.kind() {
        Kind::String => Some(vec![owned(value)?]),
        Kind::Array => value
            .elements()
            .map(|element| owned(&value.slice(element)))
            .collect(),
        _ => None,
    }
}

/// The value at `path`: a member, or the target of a JSON Pointer (RFC 6901) through objects only.
pub(crate) fn find(object: &Json, path: &str) -> Option<Json> {
    let Some(pointer) = path.strip_prefix('/') else {
        return object.get(path);
    };
    let mut value = object.clone();
    for name in pointer.split('/') {
        value = value.get(&name.replace("~1", "/").replace("~0", "~"))?;
    }
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &'static str) -> Option<Json> {
        object(Bytes::from_static(text.as_bytes()))
    }

    #[test]
    fn only_objects_with_distinct_members_are_read() {
        assert!(read(r#" {"a":[{"b":1},{"b":2}],"c":{"a":null}} "#).is_some());
        let refused = [
            r#"{"a":1,"a":1}"#,
            r#"{"a":1,"\u0061":1}"#,
            r#"{"x":{"a":1,"a":2}}"#,
            r#"{"x":[[{"a":1,"a":2}]]}"#,
            r#"{"\ud800":1}"#,
            r#"{"a":1,}"#,
            r#"{"a":1}{}"#,
            r#"[{"a":1}]"#,
            r#""{}""#,
            "",
            "{",
            "{a:1}",
            "\u{feff}{}",
        ];
        for text in refused {
            assert!(read(text).is_none(), "{text}");
        }
        assert!(object(format!("{{\"a\":{}{}}}", "[".repeat(15), "]".repeat(15))).is_some());
        assert!(object(format!("{{\"a\":{}{}}}", "[".repeat(16), "]".repeat(16))).is_none());
    }

    #[test]
    fn base64url_has_one_form() {
        assert_eq!(
            base64url("eyJ9-w").as_deref(),
            Some(&[0x7b, 0x22, 0x7d, 0xfb][..])
        );
        for text in ["YQ==", "YR", "Y", "YQ\n", "Y Q", "YWJ+", "YWJ/", "YQ.", "ÿ"] {
            assert_eq!(base64url(text), None, "{text:?}");
        }
    }

    #[test]
    fn path_is_a_name_or_a_pointer() {
        let json = read(r#"{"https://x/roles":1,"realm":{"a/b":{"~":["r"]}},"":{"":2}}"#).unwrap();
        let found = |path| find(&json, path).map(|value| value.as_text().to_owned());
        assert_eq!(found("https://x/roles").as_deref(), Some("1"));
        assert_eq!(found("/realm/a~1b/~0").as_deref(), Some(r#"["r"]"#));
        assert_eq!(found("//").as_deref(), Some("2"));
        assert_eq!(found("/realm/a/b"), None);
        assert_eq!(found("realm.a"), None);
    }

    #[test]
    fn texts_are_one_or_several() {
        let json =
            read(r#"{"a":"x","b":["x","y"],"c":["x",1],"d":1,"e":[],"f":"\ud800"}"#).unwrap();
        let found = |name| texts(&json.get(name).unwrap());
        assert_eq!(found("a"), Some(vec!["x".to_owned()]));
        assert_eq!(found("b"), Some(vec!["x".to_owned(), "y".to_owned()]));
        assert_eq!(found("e"), Some(vec![]));
        assert_eq!([found("c"), found("d"), found("f")], [None, None, None]);
    }
}
