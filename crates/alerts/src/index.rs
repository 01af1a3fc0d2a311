//! Which rules watch an object.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use model::Duration;
use model::alert::{AlertCondition, AlertRuleSpec, SubjectKind};

use crate::glob;
use crate::rows::Name;

/// Namespace of objects that belong to no namespace: workers and queues.
const CLUSTER: &str = "";

/// Rule with its pattern of names; without one, it watches all objects.
type Pattern = (Name, Option<String>);

/// Rules by the kind, the namespace and the name of the objects that they watch. Disabled rules are left out.
#[derive(Debug, Default)]
pub(crate) struct RuleIndex {
    /// Rules that name one object exactly.
    exact: BTreeMap<(SubjectKind, String, String), Vec<Name>>,
    /// All other rules.
    others: BTreeMap<(SubjectKind, String), Vec<Pattern>>,
    /// Kinds of objects that any rule watches in each namespace.
    kinds: BTreeSet<(SubjectKind, String)>,
    /// Namespaces with rules of each condition.
    conditions: BTreeMap<(&'static str, String), Vec<Name>>,
    /// Delays after which a job is late or slow, of the rules of each condition and namespace.
    delays: BTreeMap<(&'static str, String), BTreeSet<Duration>>,
}

impl RuleIndex {
    pub(crate) fn of<'r>(rules: impl Iterator<Item = &'r AlertRuleSpec>) -> Self {
        let mut index = Self::default();
        for rule in rules.filter(|rule| !rule.disabled) {
            let (kind, name) = (rule.when.subject(), Name::new(&rule.namespace, &rule.name));
            let namespace = namespace_of(kind, &rule.namespace).to_owned();
            index.conditions.entry((rule.when.name(), namespace.clone())).or_default().push(name.clone());
            if let AlertCondition::JobLate { after } | AlertCondition::JobSlow { after } = &rule.when {
                index.delays.entry((rule.when.name(), namespace.clone())).or_default().insert(*after);
            }
            index.kinds.insert((kind, namespace.clone()));
            match rule.matches.name.clone() {
                Some(exact) if !exact.contains('*') => {
                    index.exact.entry((kind, namespace, exact)).or_default().push(name);
                }
                pattern => index.others.entry((kind, namespace)).or_default().push((name, pattern)),
            }
        }
        index
    }

    /// Whether any rule watches objects of this kind in the namespace.
    pub(crate) fn watches(&self, kind: SubjectKind, namespace: &str) -> bool {
        self.kinds.contains(&(kind, namespace_of(kind, namespace).to_owned()))
    }

    /// Returns the rules with one condition that are for a namespace.
    pub(crate) fn with(&self, condition: &'static str, namespace: &str) -> &[Name] {
        self.conditions.get(&(condition, namespace.to_owned())).map_or(&[], Vec::as_slice)
    }

    /// Returns the shortest delay of a rule with this condition that is longer than `passed`.
    pub(crate) fn delay_after(
        &self,
        condition: &'static str,
        namespace: &str,
        passed: Duration,
    ) -> Option<Duration> {
        let delays = self.delays.get(&(condition, namespace.to_owned()))?;
        delays.range((Bound::Excluded(passed), Bound::Unbounded)).next().copied()
    }

    /// Returns the namespaces that have rules with this condition.
    pub(crate) fn namespaces_with(&self, condition: &str) -> Vec<String> {
        let with = self.conditions.keys().filter(|(each, _)| *each == condition);
        with.map(|(_, namespace)| namespace.clone()).collect()
    }

    /// Returns the rules that watch an object by its name; they may have further conditions.
    pub(crate) fn rules(&self, kind: SubjectKind, namespace: &str, name: &str) -> Vec<Name> {
        let namespace = namespace_of(kind, namespace).to_owned();
        let exact = self.exact.get(&(kind, namespace.clone(), name.to_owned())).into_iter().flatten();
        let others = self.others.get(&(kind, namespace)).into_iter().flatten();
        let matching = others
            .filter(|(_, pattern)| pattern.as_deref().is_none_or(|pattern| glob::matches(pattern, name)));
        exact.chain(matching.map(|(rule, _)| rule)).cloned().collect()
    }
}

fn namespace_of(kind: SubjectKind, namespace: &str) -> &str {
    if matches!(kind, SubjectKind::Worker | SubjectKind::Queue) { CLUSTER } else { namespace }
}
