-- Which alerts webhooks were told of, and the version of that.
select version, book from tidemill_alert_book
