//! A legacy server's identity, for clients whose revision has it with every result (2026-07-28
//! basic/index, Per-response protocol fields).

use std::sync::Arc;

use fanlight_protocol::json::ObjectBuilder;
use fanlight_protocol::result::ServerDescription;
use fanlight_protocol::{Json, Revision};

/// The maximum size of an `Implementation` object that is sent with each result, in bytes. Icons
/// can make it much larger.
const MOST_BYTES: usize = 1024;
/// The members of `Implementation` that identify a server.
const IDENTIFYING: [&str; 3] = ["name", "title", "version"];

/// The `Implementation` object of a server whose results do not contain it. A large one is reduced
/// to the identifying members; `None` if they are too large as well.
pub(super) fn server_info(revision: Revision, description: &Json) -> Option<Arc<Json>> {
    if revision.results_name_server {
        return None;
    }
    let own = ServerDescription::from(description.clone())
        .server_info()
        .filter(Json::is_object)?;
    if own.bytes().len() <= MOST_BYTES {
        return Some(Arc::new(own.detached()));
    }
    let mut brief = ObjectBuilder::new();
    for name in IDENTIFYING {
        if let Some(value) = own.get(name) {
            brief.member(name, &value);
        }
    }
    let brief = brief.finish();
    (brief.bytes().len() <= MOST_BYTES).then(|| Arc::new(brief))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEGACY: Revision = Revision::V2025_11_25;
    const MODERN: Revision = Revision::V2026_07_28;

    fn info(revision: Revision, own: &str) -> Option<String> {
        let description = format!(r#"{{"protocolVersion":"2025-11-25","serverInfo":{own}}}"#);
        let description = Json::parse(description.into(), 8).unwrap();
        server_info(revision, &description).map(|info| info.as_text().to_owned())
    }

    #[test]
    fn server_info_of_legacy_servers_is_kept_whole_unless_it_is_large() {
        let small = r#"{ "name":"s","version":"1","x":1.0}"#;
        assert_eq!(info(LEGACY, small).as_deref(), Some(small));
        assert_eq!(info(MODERN, small), None);
        let icon = "i".repeat(MOST_BYTES);
        let large = format!(r#"{{"version":"1E400","icons":"{icon}","name":"\u0073"}}"#);
        assert_eq!(
            info(LEGACY, &large).as_deref(),
            Some(r#"{"name":"\u0073","version":"1E400"}"#)
        );
        assert_eq!(info(LEGACY, &format!(r#"{{"name":"{icon}"}}"#)), None);
        assert_eq!(info(LEGACY, "7"), None);
        assert!(server_info(LEGACY, &Json::empty_object()).is_none());
    }
}
