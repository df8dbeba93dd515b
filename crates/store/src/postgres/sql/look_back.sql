-- A claim under these limits held jobs at these gates, and has committed; answers the queues that may look again.
select q from tidemill.look_back($1, $2::text::json, $3) q;
