//! Lean lists: the index for searches stands with the merged list.

use fanlight_protocol::Method;

use super::fake::*;
use crate::topology::View;
use crate::{CacheLimits, EndpointEntry, LeanRules, ListKind};

const T1: &str = r#""result":{"tools":[{"name":"read"},{"name":"write"}]}"#;
const T2: &str = r#""result":{"tools":[{"name":"send"}]}"#;

/// Two servers, and an endpoint that may have lean lists.
fn scene_with(lean: Option<LeanRules>) -> Scene {
    let endpoint = EndpointEntry {
        path: "/mcp".into(),
        servers: None,
        tools: None,
        prompts: None,
        resources: None,
        instructions: None,
        lean,
        results: None,
    };
    let servers = ["a", "b"].map(|name| (announcing(name, &[("tools/list", T1)]), None));
    let cache = CacheLimits {
        entries: 0,
        bytes: 0,
    };
    scene_at(servers.into(), 1000, cache, vec![endpoint])
}

impl Scene {
    /// Whether the newest list of tools has an index for searches, and the number of its tools.
    fn index(&self) -> (bool, usize) {
        let everything = View::everything(&self.gateway.lists.topology());
        let tools = self.gateway.lists.catalogues.common(ListKind::Tools);
        let list = tools.newest_in(&everything).unwrap();
        (list.has_index(), list.len())
    }
}

#[tokio::test(start_paused = true)]
async fn index_for_searches_stands_with_the_list_where_lists_are_lean() {
    let rules = LeanRules {
        always: offering("a", Some(&[]), &[]).unwrap(),
        max: None,
        except: Vec::new(),
        groups: Vec::new(),
    };
    for lean in [Some(rules), None] {
        let is_lean = lean.is_some();
        let scene = scene_with(lean);
        scene.ask("tools/list", None).await;
        rest().await;
        assert_eq!(scene.index(), (is_lean, 4));
        for (list, tools) in [(T2, 3), (T1, 4)] {
            scene.backends[0].answer("tools/list", list);
            scene.backends[0].announce(Method::ToolsChanged, None);
            rest().await;
            assert_eq!(scene.index(), (is_lean, tools));
        }
    }
}
