//! Lists that change while a client is paging through them.

use fanlight_tests::slicer::{elements, member};

use crate::clients::Client;
use crate::faults::backend;
use crate::scripted::{Era, Transport};

/// The names on one page, and the params that request the next.
async fn page(client: &mut Client, params: &str) -> (Vec<String>, Option<String>) {
    let exchange = client.request("1", "tools/list", params, "").await;
    let tools = elements(exchange.member("result.tools")).unwrap();
    let name = |tool: &&str| member(tool, "name").unwrap().trim_matches('"').to_owned();
    let next =
        member(&exchange.answer, "result.nextCursor").map(|next| format!(r#""cursor":{next}"#));
    (tools.iter().map(name).collect(), next)
}

#[tokio::test]
async fn paging_keeps_entries_of_an_unchanged_backend_while_another_changes() {
    const PAGE: usize = 2;
    // The changing server's later lists: fewer tools, more, none.
    let later: [&[&str]; 3] = [&["z"], &["k", "l", "m", "n", "o", "p"], &[]];
    for (era, front) in [
        (Era::Legacy, Transport::Http),
        (Era::Modern, Transport::Stdio),
    ] {
        for (changes_at, later) in (1..4).flat_map(|page| later.map(|tools| (page, tools))) {
            let first = backend(Era::Modern, Transport::Http).await;
            let changing = backend(Era::Legacy, Transport::Http).await;
            let last = backend(Era::Legacy, Transport::Http).await;
            first.offers_tools(&["a", "b", "c"]);
            changing.offers_tools(&["w", "x", "y"]);
            last.offers_tools(&["a", "b", "c"]);
            let servers = [
                first.entry("first"),
                changing.entry("changing"),
                last.entry("last"),
            ]
            .join(",");
            let text = format!(r#"{{"mcpServers":{{{servers}}},"x-limits":"pageSize={PAGE}"}}"#);
            let mut client = Client::start(&text, era, front).await;
            let (mut names, mut next) = page(&mut client, "").await;
            let mut pages = 1;
            while let Some(params) = next {
                if pages == changes_at {
                    changing.offers_tools(later);
                    // Another client requests the list, which makes a newer one.
                    page(&mut client, "").await;
                }
                let (more, after) = page(&mut client, &params).await;
                names.extend(more);
                next = after;
                pages += 1;
                assert!(pages < 20, "no end: {names:?}");
            }
            let of = |server: &str| -> Vec<&str> {
                names
                    .iter()
                    .filter_map(|name| name.strip_prefix(server)?.strip_prefix("__"))
                    .collect()
            };
            let cell = format!(
                "{era:?} {front:?}, changed after page {changes_at} to {later:?}: {names:?}"
            );
            assert_eq!(of("first"), ["a", "b", "c"], "{cell}");
            assert_eq!(of("last"), ["a", "b", "c"], "{cell}");
        }
    }
}
