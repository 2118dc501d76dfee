-- Version 9: a client may do what an agent may, and nothing more.

-- Workspaces that have roles of their own: nobody else may use them. A workspace that is not here is open to every agent.
CREATE TABLE IF NOT EXISTS noclobber.member (
  workspace text NOT NULL,
  role      name NOT NULL,
  PRIMARY KEY (workspace, role)
);

UPDATE noclobber.schema_version SET version = 9;
