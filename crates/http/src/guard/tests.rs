use http::Request;
use http::request::Parts;
use proptest::prelude::*;

use super::*;

fn owned(texts: &[&str]) -> Vec<String> {
    texts.iter().map(ToString::to_string).collect()
}

fn guard(hosts: &[&str], origins: &[&str]) -> Guard {
    Guard::new(&owned(hosts), Origins::Listed(owned(origins)))
}

fn head(uri: &str, headers: &[(&str, &str)]) -> Parts {
    let request = headers
        .iter()
        .fold(Request::builder().uri(uri), |request, (name, value)| {
            request.header(*name, *value)
        });
    request.body(()).unwrap().into_parts().0
}

fn check(guard: &Guard, uri: &str, headers: &[(&str, &str)]) -> Result<Option<HeaderValue>, u16> {
    let head = head(uri, headers);
    let local = Some("192.0.2.7".parse().unwrap());
    let checked = guard.check_host(&head.uri, &head.headers, local);
    let checked = checked.and_then(|()| guard.check_origin(&head.uri, &head.headers));
    checked
        .map(Option::<&HeaderValue>::cloned)
        .map_err(|rejection| rejection.status().as_u16())
}

#[test]
fn hosts_are_loopback_or_the_local_address() {
    let strict = guard(&[], &[]);
    for host in [
        "localhost",
        "LOCALHOST.:8080",
        "127.0.0.1",
        "127.0.0.1:",
        "127.8.9.1:1",
        "[::1]:8080",
        "[::ffff:127.0.0.1]",
        "192.0.2.7:80",
    ] {
        assert_eq!(
            check(&strict, "/mcp", &[("host", host)]),
            Ok(None),
            "{host}"
        );
    }
    for host in [
        "evil.example.com",
        "localhost.evil.com",
        "127.0.0.1.nip.io",
        "0.0.0.0",
        "192.0.2.8",
        "[::2]",
        "127.1",
    ] {
        assert_eq!(
            check(&strict, "/mcp", &[("host", host)]),
            Err(403),
            "{host}"
        );
    }
    for host in [
        "",
        "a b",
        "user@localhost",
        "localhost:x",
        "localhost:99999",
        "[::1",
        "[::1]x",
        "localhost:1:2",
        "[x]",
    ] {
        assert_eq!(
            check(&strict, "/mcp", &[("host", host)]),
            Err(400),
            "{host}"
        );
    }
    assert_eq!(check(&strict, "/mcp", &[]), Err(400));
    assert_eq!(
        check(
            &strict,
            "/mcp",
            &[("host", "localhost"), ("host", "localhost")]
        ),
        Err(400)
    );
}

#[test]
fn target_and_host_are_both_checked() {
    let strict = guard(&[], &[]);
    assert_eq!(check(&strict, "http://localhost:1/mcp", &[]), Ok(None));
    assert_eq!(
        check(
            &strict,
            "http://evil.example.com/mcp",
            &[("host", "localhost")]
        ),
        Err(403)
    );
    assert_eq!(
        check(
            &strict,
            "http://localhost/mcp",
            &[("host", "evil.example.com")]
        ),
        Err(403)
    );
}

#[test]
fn allowed_hosts_have_a_port_or_any() {
    let open = guard(
        &["mcp.example.com", "Other.example.com:8443", "not a host"],
        &[],
    );
    assert_eq!(
        check(&open, "/", &[("host", "MCP.example.com:9")]),
        Ok(None)
    );
    assert_eq!(
        check(&open, "/", &[("host", "other.example.com:8443")]),
        Ok(None)
    );
    assert_eq!(
        check(&open, "/", &[("host", "other.example.com")]),
        Err(403)
    );
    assert_eq!(
        check(&guard(&["*"], &[]), "/", &[("host", "anything.example")]),
        Ok(None)
    );
}

#[test]
fn listed_origins_are_served() {
    let host = ("host", "localhost");
    let listed = guard(
        &[],
        &[
            "https://app.example.com",
            "vscode-webview://panel",
            "http://plain.example:8080",
        ],
    );
    for origin in [
        "https://app.example.com",
        "HTTPS://APP.example.com:443",
        "vscode-webview://panel",
        "http://plain.example:8080",
    ] {
        assert_eq!(
            check(&listed, "/", &[host, ("origin", origin)])
                .unwrap()
                .unwrap(),
            origin
        );
    }
    for origin in [
        "null",
        "",
        "http://evil.example.com",
        "http://app.example.com",
        "https://app.example.com:444",
        "https://app.example.com.evil.com",
        "http://localhost.evil.com",
        "http://localhost:3000",
        "file://localhost",
        "http://plain.example",
    ] {
        assert_eq!(
            check(&listed, "/", &[host, ("origin", origin)]),
            Err(403),
            "{origin}"
        );
    }
    let twice = [
        host,
        ("origin", "https://app.example.com"),
        ("origin", "https://app.example.com"),
    ];
    assert_eq!(check(&listed, "/", &twice), Err(403));
    let any = guard(&[], &["*"]);
    assert!(check(&any, "/", &[host, ("origin", "https://anything.example")]).is_ok());
}

#[test]
fn pages_of_other_loopback_ports_are_served_where_they_are_listed() {
    let host = ("host", "127.0.0.1:8080");
    let served = |listed: &[&str], origin| {
        check(&guard(&[], listed), "/", &[host, ("origin", origin)]).is_ok()
    };
    for origin in [
        "http://localhost:8080",
        "http://127.0.0.1:8080",
        "http://[::1]:8080",
        "https://localhost:8080",
    ] {
        assert!(served(&[], origin), "the listener's own: {origin}");
    }
    for origin in [
        "http://localhost:3000",
        "http://localhost",
        "http://127.0.0.1:80",
        "http://[::1]:5",
        "https://127.0.0.1",
    ] {
        assert!(!served(&[], origin), "{origin}");
    }
    for origin in [
        "http://localhost:3000",
        "http://127.0.0.1:3000",
        "http://[::1]:3000",
    ] {
        assert!(served(&["http://localhost:3000"], origin), "{origin}");
    }
    for origin in [
        "http://localhost:3001",
        "https://localhost:3000",
        "http://localhost",
        "http://app.example.com:3000",
    ] {
        assert!(!served(&["http://localhost:3000"], origin), "{origin}");
    }
    assert!(
        served(&["http://localhost:*"], "http://127.0.0.1:99")
            && served(&["http://localhost:*"], "http://localhost")
    );
    assert!(!served(&["http://localhost:*"], "https://localhost:99"));
    assert!(!served(
        &["http://localhost:*"],
        "http://evil.example.com:99"
    ));
    assert!(
        !served(&["http://app.example.com:*"], "http://app.example.com:99"),
        "loopback alone"
    );
}

#[test]
fn request_of_a_foreign_page_without_an_origin_is_refused() {
    let with = |listed: &[&str], more: &[(&str, &str)]| {
        let headers = [&[("host", "localhost")], more].concat();
        check(&guard(&[], listed), "/", &headers).is_ok()
    };
    for site in ["cross-site", "same-site", "CROSS-SITE", "other", ""] {
        assert!(!with(&[], &[("sec-fetch-site", site)]), "{site}");
    }
    assert!(
        with(&[], &[])
            && with(&[], &[("sec-fetch-site", "none")])
            && with(&[], &[("sec-fetch-site", "same-origin")])
    );
    assert!(!with(
        &[],
        &[("sec-fetch-site", "none"), ("sec-fetch-site", "cross-site")]
    ));
    let app = [
        ("origin", "https://app.example.com"),
        ("sec-fetch-site", "cross-site"),
    ];
    assert!(with(&["https://app.example.com"], &app) && !with(&[], &app));
    assert!(with(&["*"], &[("sec-fetch-site", "cross-site")]));
}

#[test]
fn own_origin_is_that_of_the_host() {
    let own = Guard::new(&owned(&["admin.example.com"]), Origins::Own);
    let with = |more: &[(&'static str, &'static str)]| {
        check(
            &own,
            "/api/overview",
            &[&[("host", "localhost:8081")], more].concat(),
        )
        .is_ok()
    };
    assert!(with(&[]));
    assert!(with(&[("origin", "http://localhost:8081")]));
    assert!(with(&[("sec-fetch-site", "same-origin")]));
    assert!(with(&[("sec-fetch-site", "none")]));
    for origin in [
        "http://localhost:3000",
        "http://127.0.0.1:8081",
        "null",
        "https://evil.example.com",
        "file://",
    ] {
        assert!(!with(&[("origin", origin)]), "{origin}");
    }
    assert!(!with(&[("sec-fetch-site", "cross-site")]));
    assert!(!with(&[
        ("sec-fetch-site", "same-site"),
        ("origin", "http://localhost:8081")
    ]));
    let behind_tls = [
        ("host", "admin.example.com"),
        ("origin", "https://admin.example.com"),
    ];
    assert!(check(&own, "/", &behind_tls).is_ok());
    let differing = [
        ("host", "admin.example.com"),
        ("origin", "http://localhost"),
    ];
    assert_eq!(check(&own, "http://localhost/", &differing), Err(403));
}

proptest! {
    #[test]
    fn parsing_never_panics(text in "\\PC{0,40}") {
        let _ = HostPort::parse(&text);
        let _ = normalized(&text);
    }
}

#[test]
fn public_url_names_a_host_and_an_origin() {
    let guard = guard(&[], &[]).with_public_url(PublicUrl::parse("https://mcp.example.com"));
    for host in ["mcp.example.com", "MCP.example.com:8443"] {
        assert_eq!(check(&guard, "/mcp", &[("host", host)]), Ok(None), "{host}");
    }
    assert_eq!(
        check(&guard, "/mcp", &[("host", "x.example.com")]),
        Err(403)
    );
    let of_page = |origin| {
        check(
            &guard,
            "/mcp",
            &[("host", "mcp.example.com"), ("origin", origin)],
        )
    };
    assert!(
        of_page("https://mcp.example.com").is_ok()
            && of_page("https://mcp.example.com:443").is_ok()
    );
    for foreign in [
        "http://mcp.example.com",
        "https://mcp.example.com:8443",
        "https://example.com",
        "null",
    ] {
        assert_eq!(of_page(foreign), Err(403), "{foreign}");
    }
}

#[test]
fn listener_that_others_reach_is_not_for_this_machine_alone() {
    let guard = |hosts: &[&str]| {
        let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
        Guard::new(&hosts, Origins::Own)
    };
    let at = |url| guard(&[]).with_public_url(PublicUrl::parse(url));
    assert!(guard(&["localhost", "127.0.0.1:8080"]).is_for_this_machine());
    assert!(at("http://127.0.0.1:8080").is_for_this_machine());
    assert!(!at("https://mcp.example.com").is_for_this_machine());
    for hosts in [["*"], ["mcp.example.com"]] {
        assert!(!guard(&hosts).is_for_this_machine());
    }
    let proxies = TrustedProxies::new(vec!["127.0.0.1/32".parse().unwrap()]);
    assert!(
        !guard(&[])
            .with_trusted_proxies(proxies)
            .is_for_this_machine()
    );
}

#[test]
fn public_url_is_scheme_host_and_port() {
    for (text, url) in [
        ("https://MCP.example.com:443/", "https://mcp.example.com"),
        ("http://[::1]:8080", "http://[::1]:8080"),
        ("HTTPS://X:443/A/b/", "https://x/A/b"),
        (
            "https://mcp.example.com:8443",
            "https://mcp.example.com:8443",
        ),
    ] {
        assert_eq!(PublicUrl::parse(text).unwrap().as_str(), url);
    }
    for wrong in [
        "mcp.example.com",
        "ftp://x",
        "https://",
        "https://x//a",
        "https://x/a/../b",
        "https://x/a;b",
        "https://x/a%2fb",
        "https://x/a?y",
        "https://ann@x",
        "https://x?y",
        "",
    ] {
        assert_eq!(PublicUrl::parse(wrong), None, "{wrong}");
    }
}

#[test]
fn path_is_appended() {
    let url = PublicUrl::parse("https://mcp.example.com").unwrap();
    assert_eq!(url.join("/mcp"), "https://mcp.example.com/mcp");
    assert!(url.is_https());
    let url = PublicUrl::parse("https://mcp.example.com/gate/").unwrap();
    assert_eq!(url.join("/mcp"), "https://mcp.example.com/gate/mcp");
    assert_eq!(url.parts(), ("https://mcp.example.com", "/gate"));
}

#[test]
fn request_that_follows_metadata_is_refused_whoever_is_trusted() {
    let marked = [("host", "localhost"), (FOLLOWS_METADATA, "1")];
    assert_eq!(
        check(&guard(&["*"], &["*"]), "/api/reload", &marked),
        Err(403)
    );
    let own = Guard::new(&[], Origins::Own);
    assert_eq!(check(&own, "/api/reload", &marked), Err(403));
}
