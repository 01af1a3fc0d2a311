//! All rules of the contract, for this store.

use super::*;

store_suite!(OnDisk);

#[test]
fn no_rule_of_the_suite_is_left_out() {
    let sources = [
        include_str!("../../suite/leases.rs"),
        include_str!("../../suite/rows.rs"),
        include_str!("../../suite/lists.rs"),
        include_str!("../../suite/feed.rs"),
        include_str!("../../suite/registry.rs"),
        include_str!("../../suite/schedules.rs"),
        include_str!("../../suite/ledger.rs"),
        include_str!("../../suite/checkpoints.rs"),
        include_str!("../../suite/workflows.rs"),
        include_str!("../../suite/runs.rs"),
        include_str!("../../suite/services.rs"),
        include_str!("../../suite/elements.rs"),
        include_str!("../../suite/servers.rs"),
    ];
    let rules = sources.iter().flat_map(|source| source.lines()).filter_map(|line| {
        line.strip_prefix("pub async fn ").and_then(|rest| rest.split_once('<')).map(|(name, _)| name)
    });
    for rule in rules {
        assert!(RULES.contains(&rule), "`{rule}` is not in `store_suite!`");
    }
}
