//! All rows of a SQLite store as text, to compare two stores.

use std::path::Path;

use rusqlite::types::Value;

/// Returns all rows of all tables that every SQLite store has, in an order that depends on their content alone.
pub fn dump(path: &Path) -> Vec<String> {
    let connection = rusqlite::Connection::open(path).unwrap();
    let tables = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'
            AND name NOT IN ('raft_state', 'refused_commands', 'servers_draining') ORDER BY name";
    let mut tables = connection.prepare(tables).unwrap();
    let tables: Vec<String> = tables.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    let mut all = Vec::new();
    for table in tables {
        let mut statement = connection.prepare(&format!("SELECT * FROM {table}")).unwrap();
        let columns = statement.column_count();
        let mut found = statement.query([]).unwrap();
        let mut rows = Vec::new();
        while let Some(row) = found.next().unwrap() {
            let values: Vec<Value> = (0..columns).map(|column| row.get(column).unwrap()).collect();
            rows.push(format!("{table} {values:?}"));
        }
        rows.sort();
        all.extend(rows);
    }
    all
}
