-- A file as version 1 of the schema wrote it. Never change it: such files exist.
-- Two live jobs and two ended ones, an execution of each kind, a key, a worker, a queue, a label, three events.
PRAGMA journal_mode = WAL;
PRAGMA application_id = 1114400377;
PRAGMA user_version = 1;

-- One row: what belongs to the whole store.
CREATE TABLE meta (
    id          INTEGER PRIMARY KEY CHECK (id = 0),
    shards      INTEGER NOT NULL,
    now         INTEGER NOT NULL,   -- engine time of the newest commit
    next_event  INTEGER NOT NULL,   -- survives the trimming of all events
    checked_at  INTEGER NOT NULL
) STRICT;

CREATE TABLE shards (
    shard       INTEGER PRIMARY KEY,
    owner       TEXT,               -- nobody while absent
    epoch       INTEGER NOT NULL,
    expires_at  INTEGER NOT NULL
) STRICT;

CREATE TABLE jobs (
    id          BLOB PRIMARY KEY,
    status      INTEGER NOT NULL,
    worker      BLOB,
    expires_at  INTEGER,
    namespace   TEXT NOT NULL,
    owner       TEXT,
    queue       TEXT NOT NULL,
    name        TEXT NOT NULL,
    state       BLOB NOT NULL,
    history     BLOB NOT NULL,
    head        BLOB NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE jobs_ended (
    id          BLOB PRIMARY KEY,
    status      INTEGER NOT NULL,
    worker      BLOB,
    expires_at  INTEGER,
    namespace   TEXT NOT NULL,
    owner       TEXT,
    queue       TEXT NOT NULL,
    name        TEXT NOT NULL,
    state       BLOB NOT NULL,
    history     BLOB NOT NULL,
    head        BLOB NOT NULL
) STRICT, WITHOUT ROWID;
-- Four lists that may be rare among millions. Most jobs succeed, so a list of those is dense anyway.
CREATE INDEX jobs_ended_namespace ON jobs_ended (namespace, id);
CREATE INDEX jobs_ended_name ON jobs_ended (name, id);
CREATE INDEX jobs_ended_owner ON jobs_ended (owner, id) WHERE owner IS NOT NULL;
CREATE INDEX jobs_ended_queue ON jobs_ended (queue, id) WHERE queue <> 'default';
CREATE INDEX jobs_ended_status ON jobs_ended (status, id, namespace) WHERE status <> 4;
-- Retention; grows at its end, so it is cheap.
CREATE INDEX jobs_ended_expiry ON jobs_ended (expires_at) WHERE expires_at IS NOT NULL;

-- Of live and ended jobs alike; only jobs with labels have rows.
CREATE TABLE labels (
    key         TEXT NOT NULL,
    value       TEXT NOT NULL,
    job         BLOB NOT NULL,
    PRIMARY KEY (key, value, job)
) STRICT, WITHOUT ROWID;

CREATE TABLE executions (
    id          BLOB PRIMARY KEY,
    job         BLOB NOT NULL,
    number      INTEGER NOT NULL,
    fence       INTEGER NOT NULL,
    worker      BLOB NOT NULL,
    status      INTEGER NOT NULL,
    namespace   TEXT NOT NULL,
    job_name    TEXT NOT NULL,
    rest        BLOB NOT NULL
) STRICT, WITHOUT ROWID;
-- That fences grow with the numbers is checked where a second execution is written: an index of their
-- own would cost a sixth of all that a job costs here.
CREATE UNIQUE INDEX executions_number ON executions (job, number);

CREATE TABLE executions_ended (
    id          BLOB PRIMARY KEY,
    job         BLOB NOT NULL,
    number      INTEGER NOT NULL,
    fence       INTEGER NOT NULL,
    worker      BLOB NOT NULL,
    status      INTEGER NOT NULL,
    namespace   TEXT NOT NULL,
    job_name    TEXT NOT NULL,
    rest        BLOB NOT NULL
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX executions_ended_number ON executions_ended (job, number);
CREATE INDEX executions_ended_worker ON executions_ended (worker, id);

-- Clustered by expiry, so that forgetting is a range. The unique key is a seat belt.
CREATE TABLE keys (
    shard       INTEGER NOT NULL,
    expires_at  INTEGER NOT NULL,
    key         BLOB NOT NULL,
    body        BLOB NOT NULL,
    job         BLOB NOT NULL,
    PRIMARY KEY (shard, expires_at, key)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX keys_key ON keys (key);

CREATE TABLE job_counts (
    namespace   TEXT NOT NULL,
    status      INTEGER NOT NULL,
    count       INTEGER NOT NULL,
    PRIMARY KEY (namespace, status)
) STRICT, WITHOUT ROWID;

CREATE TABLE workers (
    id          BLOB PRIMARY KEY,
    record      BLOB NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE queues (
    name        TEXT PRIMARY KEY,
    record      BLOB NOT NULL
) STRICT, WITHOUT ROWID;

-- A row for up to some hundred events of one batch; `first` is the place of its first.
CREATE TABLE events (
    first       INTEGER PRIMARY KEY,
    count       INTEGER NOT NULL,
    at          INTEGER NOT NULL,
    payload     BLOB NOT NULL
) STRICT;

CREATE TABLE tokens (
    id          TEXT PRIMARY KEY,
    kind        INTEGER NOT NULL,
    name        TEXT NOT NULL,
    hash        BLOB NOT NULL,
    created_at  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE artifacts (
    namespace   TEXT NOT NULL,
    name        TEXT NOT NULL,
    created_at  INTEGER NOT NULL,
    sha256      TEXT NOT NULL,
    size_bytes  INTEGER NOT NULL,
    created_by  TEXT NOT NULL,
    PRIMARY KEY (namespace, name, created_at)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX artifacts_version ON artifacts (namespace, name, sha256);
CREATE INDEX artifacts_newest ON artifacts (created_at);

-- Rows that could not be read, with all of their columns.
CREATE TABLE quarantine (
    place       INTEGER PRIMARY KEY,
    origin      TEXT NOT NULL,
    key         TEXT NOT NULL,
    reason      TEXT NOT NULL,
    at          INTEGER NOT NULL,
    columns     BLOB NOT NULL
) STRICT;

INSERT INTO meta (id, shards, now, next_event, checked_at)
    VALUES (0, 16, 1795000000051546, 4, 0);
INSERT INTO shards (shard, owner, epoch, expires_at)
    VALUES (0, NULL, 1, 1795003600000000);
INSERT INTO shards (shard, owner, epoch, expires_at)
    VALUES (1, NULL, 1, 1795003600000000);
INSERT INTO shards (shard, owner, epoch, expires_at)
    VALUES (2, NULL, 1, 1795003600000000);
INSERT INTO shards (shard, owner, epoch, expires_at)
    VALUES (3, NULL, 1, 1795003600000000);
INSERT INTO shards (shard, owner, epoch, expires_at)
    VALUES (4, NULL, 1, 1795003600000000);
INSERT INTO shards (shard, owner, epoch, expires_at)
    VALUES (5, NULL, 1, 1795003600000000);
INSERT INTO shards (shard, owner, epoch, expires_at)
    VALUES (6, NULL, 1, 1795003600000000);
INSERT INTO shards (shard, owner, epoch, expires_at)
    VALUES (7, NULL, 1, 1795003600000000);
INSERT INTO shards (shard, owner, epoch, expires_at)
    VALUES (8, NULL, 1, 1795003600000000);
INSERT INTO shards (shard, owner, epoch, expires_at)
    VALUES (9, NULL, 1, 1795003600000000);
INSERT INTO shards (shard, owner, epoch, expires_at)
    VALUES (10, NULL, 1, 1795003600000000);
INSERT INTO shards (shard, owner, epoch, expires_at)
    VALUES (11, NULL, 1, 1795003600000000);
INSERT INTO shards (shard, owner, epoch, expires_at)
    VALUES (12, NULL, 1, 1795003600000000);
INSERT INTO shards (shard, owner, epoch, expires_at)
    VALUES (13, NULL, 1, 1795003600000000);
INSERT INTO shards (shard, owner, epoch, expires_at)
    VALUES (14, NULL, 1, 1795003600000000);
INSERT INTO shards (shard, owner, epoch, expires_at)
    VALUES (15, NULL, 1, 1795003600000000);
INSERT INTO jobs (id, status, worker, expires_at, namespace, owner, queue, name, state, history, head)
    VALUES (x'01a1ee565e000097314d939700000000', 2, x'01a1ee565e040019c35310ad00000000', NULL, 'default', NULL, 'slow', 'job', x'01c782af8381feb4c93bc2e0f995e0a2b00686eaf995e0a2b006010001c0eef995e0a2b0060190f2f995e0a2b00601ffffffff0f00f7a2cec0cdcaf2a2280101a1ee565e0b006e4456192f0000000001f091fa95e0a2b006002aaa0c30', x'0105deabfa95e0a2b00605070e0102009a1802020f01ffffffff0f010a6c696e650a627265616b4207000201010105007a65726f821eff010b010100c802ff070d0102010e6e696768746c792d7265706f72740bc7048b', x'01007b226e616d65223a226a6f62222c226e616d657370616365223a2264656661756c74222c227175657565223a22736c6f77222c227072696f72697479223a35302c2272756e223a7b2270726f63657373223a7b22636f6d6d616e64223a5b226563686f222c22e9929f225d7d7d2c227265736f7572636573223a7b7d2c22706c6163656d656e74223a22737072656164222c227265747279223a7b226d61785f72657472696573223a302c226d61785f73746172745f72657472696573223a332c226261636b6f6666223a7b22696e697469616c223a223173222c22666163746f72223a322e302c226d6178223a22356d222c226a6974746572223a302e327d7d2c226772616365223a22313073222c2264656c6976657279223a2261745f6c656173745f6f6e6365227d09639c0d');
INSERT INTO jobs (id, status, worker, expires_at, namespace, owner, queue, name, state, history, head)
    VALUES (x'01a1ee565e0e0008c8e8342900000003', 1, NULL, NULL, 'default', NULL, 'slow', 'job', x'01eb8199fce5d1f4cb709aacfb95e0a2b00601000001beb0fb95e0a2b006000101c589c6e1c7f8c1a4040001010100011200010871756f746522275c01027b7d18ab5b88', x'0103dcbbfb95e0a2b00600020b0101010e6e696768746c792d7265706f7274da0fff020a01ffffffff0f010e6e696768746c792d7265706f7274921602050b0101009623734f', x'01007b226e616d65223a226a6f62222c226e616d657370616365223a2264656661756c74222c226c6162656c73223a7b227465616d223a2262656c6c73227d2c227175657565223a22736c6f77222c227072696f72697479223a35302c2272756e223a7b2270726f63657373223a7b22636f6d6d616e64223a5b226563686f222c22e9929f225d7d7d2c227265736f7572636573223a7b7d2c22706c6163656d656e74223a22737072656164222c227265747279223a7b226d61785f72657472696573223a302c226d61785f73746172745f72657472696573223a332c226261636b6f6666223a7b22696e697469616c223a223173222c22666163746f72223a322e302c226d6178223a22356d222c226a6974746572223a302e327d7d2c226772616365223a22313073222c2264656c6976657279223a2261745f6c656173745f6f6e6365227dd5ad26bc');
INSERT INTO jobs_ended (id, status, worker, expires_at, namespace, owner, queue, name, state, history, head)
    VALUES (x'01a1ee565e1400b0b5ad055000000006', 4, NULL, 1795000000026028, 'default', NULL, 'slow', 'job', x'01d3b3c482fff5d9f60afeffffffffffffffff010101c096fc95e0a2b006010100ffffffff0f01ffffffff0fab8ff694e7aedaa51a0101a1ee565e1b008a8d281601000000060000c7e00127', x'0105d8adfc95e0a2b00605000001ffffffff0f00d7adfc95e0a2b0060305040000b0c9fc95e0a2b00604070e01ffffffff0f00b1c9fc95e0a2b006ff0302010201016102ff070101ffffffff0f010161f6418657', x'01007b226e616d65223a226a6f62222c226e616d657370616365223a2264656661756c74222c227175657565223a22736c6f77222c227072696f72697479223a35302c2272756e223a7b2270726f63657373223a7b22636f6d6d616e64223a5b226563686f222c22e9929f225d7d7d2c227265736f7572636573223a7b7d2c22706c6163656d656e74223a22737072656164222c227265747279223a7b226d61785f72657472696573223a302c226d61785f73746172745f72657472696573223a332c226261636b6f6666223a7b22696e697469616c223a223173222c22666163746f72223a322e302c226d6178223a22356d222c226a6974746572223a302e327d7d2c226772616365223a22313073222c2264656c6976657279223a2261745f6c656173745f6f6e6365227d55c57eaa');
INSERT INTO jobs_ended (id, status, worker, expires_at, namespace, owner, queue, name, state, history, head)
    VALUES (x'01a1ee565e1d00f7aaac35a300000009', 5, NULL, 1795000000032335, 'default', NULL, 'slow', 'job', x'01e6aac480c189b2d5ad01be93fd95e0a2b006cca3fd95e0a2b00600000192a8fd95e0a2b006000000d5c7edf0d897c0a497010001c6b7fd95e0a2b0060060a34aac', x'010077b290dc', x'010101a1ee565e1d00f7aaac35a3000000097b226e616d65223a226a6f62222c226e616d657370616365223a2264656661756c74222c227175657565223a22736c6f77222c227072696f72697479223a35302c2272756e223a7b2270726f63657373223a7b22636f6d6d616e64223a5b226563686f222c22e9929f225d7d7d2c227265736f7572636573223a7b7d2c22706c6163656d656e74223a22737072656164222c227265747279223a7b226d61785f72657472696573223a302c226d61785f73746172745f72657472696573223a332c226261636b6f6666223a7b22696e697469616c223a223173222c22666163746f72223a322e302c226d6178223a22356d222c226a6974746572223a302e327d7d2c226772616365223a22313073222c2264656c6976657279223a2261745f6c656173745f6f6e6365227d53eaf32f');
INSERT INTO labels (key, value, job)
    VALUES ('team', 'bells', x'01a1ee565e0e0008c8e8342900000003');
INSERT INTO executions (id, job, number, fence, worker, status, namespace, job_name, rest)
    VALUES (x'01a1ee565e0b006e4456192f00000000', x'01a1ee565e000097314d939700000000', 1, 16777217, x'01a1ee565e0c00018d57dd8400000000', 1, 'default', 'job', x'019287fb95e0a2b0060000010000000001027b7d01e7f2befdda8ba6b3fa010b9ed2d6c48ae6f9b466f5bb32deb7f3e7');
INSERT INTO executions_ended (id, job, number, fence, worker, status, namespace, job_name, rest)
    VALUES (x'01a1ee565e1b008a8d28160100000006', x'01a1ee565e1400b0b5ad055000000006', 1, 16777217, x'01a1ee565e1b008a8d28160100010000', 2, 'default', 'job', x'0182f2fc95e0a2b0060001def7fc95e0a2b0060000214da553');
INSERT INTO keys (shard, expires_at, key, body, job)
    VALUES (0, 1795003600012872, x'639eb237648d0dbffcb1098f8c22f90a', x'5af91a35826910af3f44771ea7b513a2', x'01a1ee565e000097314d939700000000');
INSERT INTO job_counts (namespace, status, count)
    VALUES ('default', 1, 1);
INSERT INTO job_counts (namespace, status, count)
    VALUES ('default', 2, 1);
INSERT INTO job_counts (namespace, status, count)
    VALUES ('default', 4, 1);
INSERT INTO job_counts (namespace, status, count)
    VALUES ('default', 5, 1);
INSERT INTO workers (id, record)
    VALUES (x'01a1ee565e21004689c3934800000000', x'017b226964223a22776b725f30316d37713563716831303133386b67776b3930303030303030222c226e616d65223a226c696e655c6e627265616b222c2276657273696f6e223a22e9929fe6a5bc222c226c6162656c73223a7b226c696e655c6e627265616b223a22e9929fe6a5bc227d2c226361706163697479223a7b22637075223a22313530306d222c226d656d6f7279223a2237303430383032343033383542222c22637573746f6d223a7b22223a317d2c22736c6f7473223a377d2c226361706162696c6974696573223a7b2272756e74696d6573223a5b225c75303030307a65726f225d2c226d656d6f72795f6c696d6974223a747275652c226370755f6c696d6974223a66616c73652c22706964735f6c696d6974223a66616c73652c226f776e5f75736572223a66616c73657d2c22737461747573223a226c6f7374222c2261646d697373696f6e223a22636f72646f6e6564222c22637265617465645f6174223a22323032362d31312d31385431313a30363a34302e3033353733355a222c22757064617465645f6174223a22323032362d31312d31385431313a30363a34302e3033373230365a227dc267a842');
INSERT INTO queues (name, record)
    VALUES ('slow', x'017b226e616d65223a22736c6f77222c2273657474696e6773223a7b22726174655f7065725f7365636f6e64223a302e312c22776569676874223a312c22706175736564223a66616c73657d2c2276657273696f6e223a333732333238343537363336383233302c22757064617465645f6174223a22323032362d31312d31385431313a30363a34302e3033393132335a227d5fe73cb0');
INSERT INTO events (first, count, at, payload)
    VALUES (1, 3, 1795000000051459, x'0103b0e0fe95e0a2b006000101a1ee565e28005a3a6752930000000301a1ee565e2900b41f6c7dae0000000301a1ee565e2a007ff192922700000000d2abff95e0a2b006000001a1ee565e2c001a31803c8500000003ff050a0101a1ee565e2c001a31803c85000100030101a1ee565e2e00c55caffaf80000000086e4ff95e0a2b006000101a1ee565e3000b41c1226720000000301a1ee565e31004bfb65ad4a0000000301a1ee565e32000ad490269200000000d965d7c5');
