-- The rules have changed: claims that were made up by those before are refused.
update tidemill_rulebook set edition = edition + 1
