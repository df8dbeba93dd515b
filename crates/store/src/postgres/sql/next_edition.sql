-- The rules have changed: claims that were made up by those before are refused.
update tidemill.rulebook set edition = edition + 1;
