"""Notifications by range of the log, in memory and in files. Read in this order:

retained_ranges          the ranges that somebody may still need, in order; merging them, and cutting them down
merge_plan               which ranges to merge into one file, and when
notification_directory   the files on disk: recovery at the start, writing and deleting
file_keeper              about once a second: deletes, writes and merges files, safe against a crash at any moment
followed_files           the same files as another gateway of the site sees them, which only reads its share
"""
