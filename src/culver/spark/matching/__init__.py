"""`culver.spark.match`, from a DataFrame and filters to the function that runs in Spark's workers.

frame_matching        match: checks everything, ships the filters, and asks Spark to run the workers
event_schema          what the columns mean, and whether the filters suit them
filter_forms          a dictionary, a DataFrame, a file ... as a matcher
filter_package        a matcher on its way to the machines
replaceable_filters   Filters, which change while a query runs; filter_server and filter_versions serve them
worker_matching       what runs in the workers
"""
