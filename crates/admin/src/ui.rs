//! The page: files that are part of the binary.
//!
//! Must not know: what the page asks for.

use http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, ETAG, IF_NONE_MATCH};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use crate::reply::{self, Reply};

/// Nothing from elsewhere, nothing inline, nobody frames it.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; \
     form-action 'none'; frame-ancestors 'none'; base-uri 'none'";

/// One file.
#[derive(Debug)]
pub(crate) struct Asset {
    path: &'static str,
    kind: &'static str,
    text: &'static str,
}

macro_rules! assets {
    ($($file:literal: $kind:expr),* $(,)?) => {
        &[$(Asset { path: concat!("/ui/", $file), kind: $kind, text: include_str!(concat!("../ui/", $file)) }),*]
    };
}

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

const ASSETS: &[Asset] = assets![
    "index.html": HTML,
    "style.css": "text/css; charset=utf-8",
    "icon.svg": "image/svg+xml",
    "app.js": SCRIPT,
    "api.js": SCRIPT,
    "catalogue.js": SCRIPT,
    "config.js": SCRIPT,
    "dom.js": SCRIPT,
    "form.js": SCRIPT,
    "format.js": SCRIPT,
    "json.js": SCRIPT,
    "live.js": SCRIPT,
    "overview.js": SCRIPT,
    "runner.js": SCRIPT,
    "sessions.js": SCRIPT,
    "spans.js": SCRIPT,
    "trace.js": SCRIPT,
    "traces.js": SCRIPT,
];

/// The file at a path.
pub(crate) fn asset(path: &str) -> Option<&'static Asset> {
    let path = if matches!(path, "/ui" | "/ui/") { "/ui/index.html" } else { path };
    ASSETS.iter().find(|asset| asset.path == path)
}

impl Asset {
    /// The file, unless the browser has it already.
    pub(crate) fn reply(&self, headers: &HeaderMap) -> Reply {
        let tag = self.tag();
        let is_known = headers.get(IF_NONE_MATCH).is_some_and(|known| known.as_bytes() == tag.as_bytes());
        let (status, text) = if is_known { (StatusCode::NOT_MODIFIED, "") } else { (StatusCode::OK, self.text) };
        let mut response = reply::text(status, self.kind, text);
        let headers = response.headers_mut();
        // Asked for each time, since the next version of the program has others at the same place.
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
        headers.insert(HeaderName::from_static("cross-origin-opener-policy"), HeaderValue::from_static("same-origin"));
        if let Ok(tag) = HeaderValue::from_str(&tag) {
            headers.insert(ETAG, tag);
        }
        response
    }

    fn tag(&self) -> String {
        let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, self.text.as_bytes());
        let hex: String = digest.as_ref().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        format!("\"{hex}\"")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_file_of_the_page_is_served() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/ui");
        let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap());
        let served = ASSETS.iter().map(|asset| asset.path.trim_start_matches("/ui/").to_owned());
        assert_eq!(files.collect::<BTreeSet<_>>(), served.collect::<BTreeSet<_>>());
    }

    #[test]
    fn the_page_needs_nothing_that_its_policy_forbids() {
        for asset in ASSETS {
            // Namespaces are names, not addresses.
            let text = asset.text.replace("http://www.w3.org/2000/svg", "");
            for forbidden in [
                "http://",
                "https://",
                "//cdn",
                "innerHTML",
                "outerHTML",
                "insertAdjacentHTML",
                "document.write",
                "eval(",
            ] {
                assert!(!text.contains(forbidden), "{} has {forbidden}", asset.path);
            }
            let inline =
                asset.kind == HTML && (text.contains("<script>") || text.contains("style=") || text.contains("<style"));
            assert!(!inline, "{}", asset.path);
        }
    }

    #[test]
    fn what_the_browser_has_is_not_sent_again() {
        let asset = asset("/ui").unwrap();
        let first = asset.reply(&HeaderMap::new());
        assert_eq!(first.status(), StatusCode::OK);
        let mut headers = HeaderMap::new();
        headers.insert(IF_NONE_MATCH, first.headers()[ETAG].clone());
        assert_eq!(asset.reply(&headers).status(), StatusCode::NOT_MODIFIED);
        assert!(super::asset("/ui/nothing.js").is_none());
    }
}
