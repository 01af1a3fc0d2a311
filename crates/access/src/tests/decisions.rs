//! The rules of a decision.
//!
//! A table holds what each built-in role allows. The other tests hold one rule each: prefixes of namespaces,
//! limits of tokens, questions without a namespace, and the words of a denial. Properties over random roles and
//! bindings are tested in `properties`.

use super::{Scenario, scope, token};
use crate::{Bearer, BuiltInRole, Denied, IdentityKind, Object, Permissions, Resource, Rule, Verb};

#[track_caller]
fn denied(scenario: &Scenario, token: &str, verb: Verb, object: Object<'_>) -> Denied {
    scenario.identity(token).decide(verb, object).expect_err("a denial")
}

/// One table for each built-in role. A letter in a cell allows, a dot denies.
#[test]
fn every_role_allows_exactly_this() {
    let mut text =
        "In each cell, bound in `finance`: f = in `finance`, o = in another namespace, c = in the cluster.\n\
                    Then bound in `*`: N = in any namespace, C = in the cluster.\n"
            .to_owned();
    for role in BuiltInRole::ALL {
        let role = role.as_str();
        let scenario =
            Scenario::new().user("ann").bound("ann", role, "finance").user("bob").bound("bob", role, "*");
        let (ann, bob) = (scenario.identity("ann"), scenario.identity("bob"));
        text += &format!("\n{role:<12}");
        text += &Verb::ALL.iter().map(|verb| format!("{:<9}", verb.as_str())).collect::<String>();
        for &resource in Resource::ALL {
            text = format!("{}\n{:<12}", text.trim_end(), resource.as_str());
            for &verb in Verb::ALL {
                let (finance, sales) =
                    (Object::in_namespace(resource, "finance"), Object::in_namespace(resource, "sales"));
                let cluster = Object::cluster(resource);
                for (identity, object, letter) in [
                    (&ann, finance, 'f'),
                    (&ann, sales, 'o'),
                    (&ann, cluster, 'c'),
                    (&bob, sales, 'N'),
                    (&bob, cluster, 'C'),
                ] {
                    text.push(if identity.decide(verb, object).is_ok() { letter } else { '.' });
                }
                text += "    ";
            }
        }
        text = format!("{}\n", text.trim_end());
    }
    insta::assert_snapshot!(text);
}

#[test]
fn a_system_token_may_do_everything_except_work() {
    let root = Scenario::new().identity("root");
    assert_eq!(root.kind, IdentityKind::Admin);
    for &verb in Verb::ALL {
        for &resource in Resource::ALL {
            let (cluster, finance) = (Object::cluster(resource), Object::in_namespace(resource, "finance"));
            assert_eq!(root.decide(verb, cluster).is_ok(), verb != Verb::Work, "{verb} {resource}");
            assert_eq!(root.decide(verb, finance).is_ok(), verb != Verb::Work, "{verb} {resource}");
        }
    }
}

#[test]
fn a_worker_may_work_and_nothing_else() {
    let worker = Scenario::new().token(token("w", Bearer::Worker("node-1".into()))).identity("w");
    for &verb in Verb::ALL {
        for &resource in Resource::ALL {
            let allowed = worker.decide(verb, Object::cluster(resource)).is_ok();
            assert_eq!(allowed, verb == Verb::Work, "{verb} {resource}");
            assert_eq!(worker.anywhere(verb, resource).is_ok(), allowed, "{verb} {resource}");
            assert_eq!(worker.namespaces(verb, resource).is_empty(), !allowed, "{verb} {resource}");
        }
    }
}

#[test]
fn a_prefix_covers_the_namespaces_below_it() {
    let ann = Scenario::new().user("ann").bound("ann", "viewer", "team/*").identity("ann");
    let allowed = ["team/a", "team/a/b", "team", "teams", "team/", "finance"]
        .map(|namespace| ann.decide(Verb::Read, Object::in_namespace(Resource::Jobs, namespace)).is_ok());
    assert_eq!(allowed, [true, true, false, false, false, false]);
}

#[test]
fn a_scope_limits_a_system_token() {
    let limited = Scenario::new().token(crate::Token {
        scope: Some(scope(Some("viewer"), &["finance"])),
        ..token("s", Bearer::Admin("report".into()))
    });
    let identity = limited.identity("s");
    assert_eq!(identity.decide(Verb::Read, Object::in_namespace(Resource::Jobs, "finance")), Ok(()));
    assert_eq!(identity.decide(Verb::Read, Object::cluster(Resource::Workers)), Ok(()));
    for (verb, object) in [
        (Verb::Read, Object::in_namespace(Resource::Jobs, "sales")),
        (Verb::Read, Object::cluster(Resource::Jobs)),
        (Verb::Operate, Object::in_namespace(Resource::Jobs, "finance")),
        (Verb::Operate, Object::cluster(Resource::Workers)),
    ] {
        assert!(identity.decide(verb, object).is_err(), "{verb} {object:?}");
    }
}

#[test]
fn a_scope_does_not_widen_the_rights_of_an_account() {
    let scenario = Scenario::new()
        .user("ann")
        .bound("ann", "viewer", "finance")
        .limited("ann", scope(Some("admin"), &["finance", "sales"]));
    let ann = scenario.identity("ann");
    assert!(ann.decide(Verb::Operate, Object::in_namespace(Resource::Jobs, "finance")).is_err());
    assert!(ann.decide(Verb::Read, Object::in_namespace(Resource::Jobs, "sales")).is_err());
}

#[test]
fn anywhere_needs_a_namespace_that_account_and_token_share() {
    let bound = || Scenario::new().user("ann").bound("ann", "viewer", "team/*");
    let anywhere = |namespaces: &[&str]| {
        bound().limited("ann", scope(None, namespaces)).identity("ann").anywhere(Verb::Read, Resource::Jobs)
    };
    assert_eq!(bound().identity("ann").anywhere(Verb::Read, Resource::Jobs), Ok(()));
    assert_eq!(anywhere(&["team/a"]), Ok(()));
    assert_eq!(anywhere(&["*"]), Ok(()));
    insta::assert_snapshot!(
        anywhere(&["finance"]).unwrap_err(),
        @"`ann` may not read jobs: the token is limited to certain namespaces"
    );
}

#[test]
fn namespaces_are_those_of_the_bindings_within_the_scope() {
    let scenario =
        Scenario::new().user("ann").bound("ann", "viewer", "team/*").bound("ann", "admin", "finance");
    let namespaces = |scenario: &Scenario, verb, resource| {
        format!("{:?}", scenario.identity("ann").namespaces(verb, resource))
    };
    assert_eq!(namespaces(&scenario, Verb::Read, Resource::Jobs), r#"Some({"finance", "team/*"})"#);
    assert_eq!(namespaces(&scenario, Verb::Change, Resource::Jobs), r#"Some({"finance"})"#);
    assert_eq!(namespaces(&scenario, Verb::Read, Resource::Workers), "All");
    assert_eq!(namespaces(&scenario, Verb::Operate, Resource::Workers), "Some({})");
    let scenario = scenario.limited("ann", scope(None, &["team/a", "sales"]));
    assert_eq!(namespaces(&scenario, Verb::Read, Resource::Jobs), r#"Some({"team/a"})"#);
    let scenario = scenario.bound("ann", "viewer", "*");
    assert_eq!(namespaces(&scenario, Verb::Read, Resource::Jobs), r#"Some({"sales", "team/a"})"#);
}

/// The rule against escalation.
#[test]
fn the_missing_permissions_are_those_outside_of_grants_and_scope() {
    let scenario = Scenario::new().user("ann").bound("ann", "operator", "team/*").bound("ann", "viewer", "*");
    let (viewer, operator) = (BuiltInRole::Viewer.permissions(), BuiltInRole::Operator.permissions());
    let missing = |scenario: &Scenario, pattern| scenario.identity("ann").missing(operator, pattern);
    let operable = operator.difference(viewer);
    for pattern in ["team/a", "team/a/*", "team/*"] {
        assert_eq!(missing(&scenario, pattern), Permissions::NONE, "{pattern}");
    }
    for pattern in ["team", "*", "finance"] {
        assert_eq!(missing(&scenario, pattern), operable, "{pattern}");
    }
    let scenario = scenario.limited("ann", scope(Some("viewer"), &["team/a"]));
    assert_eq!(missing(&scenario, "team/a"), operable);
    let of_cluster = [Resource::Workers, Resource::Queues, Resource::Server, Resource::Namespaces];
    let anywhere = Permissions::of(&[Verb::Read], &of_cluster);
    assert_eq!(missing(&scenario, "team/b"), operator.difference(anywhere));
}

#[test]
fn a_denial_names_the_caller_the_action_and_the_reason() {
    let scenario = Scenario::new()
        .user("ann")
        .bound("ann", "viewer", "finance")
        .bound("ann", "operator", "team/*")
        .user("bob")
        .user("eve")
        .bound("eve", "admin", "*")
        .limited("eve", scope(Some("viewer"), &["finance"]))
        .token(token("w", Bearer::Worker("node-1".into())));
    let finance = Object::in_namespace(Resource::Jobs, "finance");
    let sales = Object::in_namespace(Resource::Jobs, "sales");
    let messages = [
        denied(&scenario, "ann", Verb::Operate, finance),
        denied(&scenario, "ann", Verb::Read, sales),
        denied(&scenario, "ann", Verb::Read, Object::cluster(Resource::Jobs)),
        denied(&scenario, "ann", Verb::Operate, Object::cluster(Resource::Workers)),
        denied(&scenario, "ann", Verb::Create, Object::cluster(Resource::Access)),
        denied(&scenario, "bob", Verb::Read, Object::cluster(Resource::Server)),
        denied(&scenario, "eve", Verb::Change, finance),
        denied(&scenario, "eve", Verb::Read, sales),
        denied(&scenario, "eve", Verb::Read, Object::cluster(Resource::Jobs)),
        denied(&scenario, "w", Verb::Create, Object::cluster(Resource::Jobs)),
        denied(&scenario, "root", Verb::Work, Object::cluster(Resource::Executions)),
    ]
    .map(|denied| denied.to_string());
    insta::assert_snapshot!(messages.join("\n"));
}

#[test]
fn a_denial_names_five_roles_at_most() {
    let rules = [Rule { verbs: vec![Verb::Read], resources: vec![Resource::Logs] }];
    let mut scenario = Scenario::new().user("ann");
    for name in ["a", "b", "c", "d", "e", "f", "g"] {
        scenario = scenario.role(name, &rules).bound("ann", name, "finance");
    }
    insta::assert_snapshot!(
        denied(&scenario, "ann", Verb::Read, Object::in_namespace(Resource::Jobs, "finance")),
        @"`ann` may not read jobs in namespace `finance`: the roles of `ann` there (`a`, `b`, `c`, `d`, `e` and 2 more) do not include it"
    );
}

#[test]
fn words_are_read_back() {
    for &verb in Verb::ALL {
        assert_eq!(verb.as_str().parse(), Ok(verb));
        assert_eq!(serde_json::to_string(&verb).unwrap(), format!("{:?}", verb.as_str()));
    }
    for &resource in Resource::ALL {
        assert_eq!(resource.as_str().parse(), Ok(resource));
        assert_eq!(serde_json::to_string(&resource).unwrap(), format!("{:?}", resource.as_str()));
    }
    insta::assert_snapshot!(
        "write".parse::<Verb>().unwrap_err(),
        @"`write` is not a verb: expected one of read, operate, create, change, delete, work"
    );
}

#[test]
fn rules_of_a_built_in_role_give_its_permissions() {
    for role in BuiltInRole::ALL {
        assert_eq!(Rule::permissions(&Rule::of(role.permissions())), role.permissions(), "{role}");
    }
}
