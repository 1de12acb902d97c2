//! Listening rmcp clients while the configuration file changes.

use std::fs;
use std::path::{Path, PathBuf};

use futures_util::FutureExt as _;
use rmcp::model::{ServerNotification, SubscriptionFilter};
use rmcp::service::Subscription;
use serde_json::json;

use super::server;
use crate::harness::{Gateway, within};
use crate::rmcp_peers::{self, Client, http_client, stdio_client};
use crate::scripted::{Era, Transport, config};

/// The source of notifications about changes of the tools.
enum Changes {
    /// The subscription of a modern client.
    Subscribed(Box<Subscription>),
    /// The handler of a legacy client, and the number of changes seen so far.
    Handler(usize),
}

impl Changes {
    async fn watch(client: &Client, modern: bool) -> Self {
        if !modern {
            return Self::Handler(0);
        }
        let filter = SubscriptionFilter::builder().tools_list_changed().build();
        let subscription = within("the subscription", client.listen(filter))
            .await
            .unwrap();
        assert_eq!(subscription.acknowledged().tools_list_changed, Some(true));
        Self::Subscribed(Box::new(subscription))
    }

    /// Waits for the next change.
    async fn next(&mut self, client: &Client) {
        match self {
            Self::Subscribed(subscription) => {
                let notification = within("list_changed", subscription.next()).await.unwrap();
                let changed = matches!(
                    notification,
                    Some(ServerNotification::ToolListChangedNotification(_))
                );
                assert!(changed, "{notification:?}");
            }
            Self::Handler(seen) => {
                let mut changes = client.service().tool_list_changes.subscribe();
                *seen += 1;
                within("list_changed", changes.wait_for(|all| all >= seen))
                    .await
                    .unwrap();
            }
        }
    }

    /// Whether a change has arrived that the test did not wait for.
    fn more(&mut self, client: &Client) -> bool {
        match self {
            Self::Subscribed(subscription) => subscription.next().now_or_never().is_some(),
            Self::Handler(seen) => *client.service().tool_list_changes.borrow() > *seen,
        }
    }
}

/// The names of all tools, in alphabetical order.
async fn names(client: &Client) -> Vec<String> {
    let tools = within("the list", client.list_all_tools()).await.unwrap();
    let mut names: Vec<_> = tools
        .into_iter()
        .map(|tool| tool.name.into_owned())
        .collect();
    names.sort();
    names
}

/// Replaces a file in the way that editors do.
fn replace(file: &Path, text: &str) {
    let new = file.with_extension("new");
    fs::write(&new, text).unwrap();
    fs::rename(&new, file).unwrap();
}

/// Adds a server to the file and removes it: the client gets one notification for each, and its
/// next list has the change.
async fn sees_changes(client: &Client, modern: bool, file: PathBuf, [base, more]: &[String; 2]) {
    assert_eq!(names(client).await, ["a__t", "b__t"]);
    let mut changes = Changes::watch(client, modern).await;
    for _ in 0..2 {
        replace(&file, more);
        changes.next(client).await;
        assert_eq!(names(client).await, ["a__t", "b__t", "c__t"]);
        let answer = rmcp_peers::call(client, "c__t", &json!({})).await;
        assert_eq!(answer.content[0].as_text().unwrap().text, "c");
        replace(&file, base);
        changes.next(client).await;
        assert_eq!(names(client).await, ["a__t", "b__t"]);
        assert!(
            !changes.more(client),
            "a second notification for one change"
        );
    }
}

#[tokio::test]
async fn rmcp_clients_get_one_list_changed_for_each_change_of_the_file() {
    for era in [Era::Legacy, Era::Modern] {
        let a = server(era, Transport::Http, "a").await;
        let b = server(Era::Legacy, Transport::Http, "b").await;
        let c = server(era, Transport::Http, "c").await;
        let configs = [
            config(&[a.entry("a"), b.entry("b")]),
            config(&[a.entry("a"), b.entry("b"), c.entry("c")]),
        ];
        for modern in [false, true] {
            let gateway = Gateway::start(&configs[0]).await;
            let client = http_client(&gateway.url(), modern).await;
            sees_changes(&client, modern, gateway.config_path().to_owned(), &configs).await;
            client.cancel().await.unwrap();

            let peer = stdio_client(&configs[0], modern).await;
            sees_changes(
                &peer.client,
                modern,
                peer.config.path().to_owned(),
                &configs,
            )
            .await;
            peer.client.cancel().await.unwrap();
        }
    }
}
