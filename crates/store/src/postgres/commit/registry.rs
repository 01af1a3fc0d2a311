//! Writes workers, queues, namespaces and calendars. They belong to no shard, so two servers may write the same row. Rows are
//! written in key order, so that no deadlock is possible.

use std::collections::{BTreeMap, BTreeSet};

use model::record::Change;

use super::{Steps, uuid};
use crate::batch::to_json;
use crate::codec::{Context, calendar_context, seal_text};
use crate::postgres::param::{blobs, escape, ids, texts};

impl Steps {
    /// Writes the changes of workers, queues, namespaces and calendars in a batch.
    pub(super) fn registry(&mut self, changes: &[Change]) {
        let (mut workers, mut gone) = (BTreeMap::new(), BTreeSet::new());
        let mut gone_queues = BTreeSet::new();
        let (mut namespaces, mut gone_namespaces) = (BTreeMap::new(), BTreeSet::new());
        let (mut queues, mut calendars, mut removed) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
        for change in changes {
            match change {
                Change::Worker(record) => {
                    let bits = record.id.to_bits();
                    workers.insert(bits, seal_text(Context::of(bits), &to_json(&**record)));
                }
                Change::RemoveWorker(id) => {
                    gone.insert(uuid(id.to_bits()));
                }
                Change::Queue(record) => {
                    let sealed = seal_text(Context::of_text(&record.name), &to_json(&**record));
                    let name = escape(&record.name);
                    gone_queues.remove(&name);
                    queues.insert(name, sealed);
                }
                Change::RemoveQueue(name) => {
                    let name = escape(name);
                    queues.remove(&name);
                    gone_queues.insert(name);
                }
                Change::Namespace(record) => {
                    let sealed = seal_text(Context::of_text(&record.name), &to_json(&**record));
                    let name = escape(&record.name);
                    gone_namespaces.remove(&name);
                    namespaces.insert(name, sealed);
                }
                Change::RemoveNamespace(name) => {
                    let name = escape(name);
                    namespaces.remove(&name);
                    gone_namespaces.insert(name);
                }
                Change::Calendar(record) => {
                    let (namespace, name) = (&record.spec.namespace, &record.spec.name);
                    let sealed = seal_text(calendar_context(namespace, name), &to_json(&**record));
                    calendars.insert((escape(namespace), escape(name)), sealed);
                }
                Change::RemoveCalendar { namespace, name } => {
                    removed.insert((escape(namespace), escape(name)));
                }
                _ => {}
            }
        }
        if !gone_queues.is_empty() {
            let names = gone_queues.into_iter().collect();
            self.add("DELETE FROM queues WHERE name = ANY($1)", vec![texts(names)]);
        }
        if !workers.is_empty() {
            let (keys, records) = workers.into_iter().map(|(bits, record)| (uuid(bits), record)).unzip();
            self.add(
                "INSERT INTO workers SELECT * FROM unnest($1, $2)
                 ON CONFLICT (id) DO UPDATE SET record = excluded.record",
                vec![ids(keys), blobs(records)],
            );
        }
        if !gone.is_empty() {
            self.add("DELETE FROM workers WHERE id = ANY($1)", vec![ids(gone.into_iter().collect())]);
        }
        if !queues.is_empty() {
            let (names, records) = queues.into_iter().unzip();
            self.add(
                "INSERT INTO queues SELECT * FROM unnest($1, $2)
                 ON CONFLICT (name) DO UPDATE SET record = excluded.record",
                vec![texts(names), blobs(records)],
            );
        }
        if !gone_namespaces.is_empty() {
            let names = gone_namespaces.into_iter().collect();
            self.add("DELETE FROM namespaces WHERE name = ANY($1)", vec![texts(names)]);
        }
        if !namespaces.is_empty() {
            let (names, records) = namespaces.into_iter().unzip();
            self.add(
                "INSERT INTO namespaces SELECT * FROM unnest($1, $2)
                 ON CONFLICT (name) DO UPDATE SET record = excluded.record",
                vec![texts(names), blobs(records)],
            );
        }
        if !calendars.is_empty() {
            let (keys, records): (Vec<_>, Vec<_>) = calendars.into_iter().unzip();
            let (namespaces, names) = keys.into_iter().unzip();
            self.add(
                "INSERT INTO calendars SELECT * FROM unnest($1, $2, $3)
                 ON CONFLICT (namespace, name) DO UPDATE SET record = excluded.record",
                vec![texts(namespaces), texts(names), blobs(records)],
            );
        }
        if !removed.is_empty() {
            let (namespaces, names) = removed.into_iter().unzip();
            self.add(
                "DELETE FROM calendars c USING unnest($1, $2) AS u (namespace, name)
                 WHERE c.namespace = u.namespace AND c.name = u.name",
                vec![texts(namespaces), texts(names)],
            );
        }
    }
}
