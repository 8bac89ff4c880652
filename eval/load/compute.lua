-- For sysbench: a query that computes some milliseconds and reads no table.
function thread_init()
    connection = sysbench.sql.driver():connect()
end

function event()
    connection:query("SELECT BENCHMARK(20000, MD5('crane'))")
end

function thread_done()
    connection:disconnect()
end
