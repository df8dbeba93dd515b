-- Each flow's state, and whether it is a saga. Counted by who asks: grouping would sort all flows in memory.
select state, saga from tidemill_flow
