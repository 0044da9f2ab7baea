"""Encoded predicates: what one site tells the others about its subscriptions, and how events are matched against it.

After B-DRP (section 3 of its paper): a clause becomes a set of categories, a set of categories becomes a bit vector,
which is a Bloom filter, and an event may match the clause only if its own vector has all bits of that vector. The
result may have too many matches and never too few.

    symbol = 'ABC' AND price > 20          {symbol: "ABC", price: 51.2}
            |  categories                           |  of the forms that some predicate uses
            v                                       v
    equal:string:symbol  ABC               equal:string:symbol  ABC
    least:number:price:25                  least:number:price:25   (51.2 >= 16)
            |  Bloom                                |
            v                                       v
    0100 0010 0001 0000         within     0110 1010 0011 0000

    forms               categories, the forms they come in, and their hashes
    constraint_options  from clauses to sets of categories
    row_widening        from the rows of a set of subscriptions to a few clauses
    category_sets       which sets to keep: covered ones go, too many become fewer and wider
    bloom_vectors       from categories to bit vectors, and how many bits that takes
    encoded_predicate   what is advertised, and its text
    predicate_summary   keeps the aggregate of a site's predicates
    predicate_delta     the difference between two advertisements
    event_vectors       hot: from a batch of events to their vectors
    vector_table        hot: all vectors of all registrations, and those within an event's vector
    encoded_filter      the filter of the scheme `encoded`
"""
