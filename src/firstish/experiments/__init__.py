"""Problems against methods: run, record, summarise, draw."""
