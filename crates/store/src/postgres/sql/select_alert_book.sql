-- Which alerts webhooks were told of, and the version of that.
select version, book from tidemill.alert_book;
