"""Groups by expression: which nodes a message is for if it has an expression over keywords instead of topics.

``expression`` has the grammar and the evaluation, ``keywords`` the keywords of topics and the members of a group. All
protocols, workloads and the analysis use them; how ``implicit-groups`` finds the members is in its package.

Source: Cutting, Landfeldt, Quigley: *Implicit group messaging in peer-to-peer networks*, section 2.5.1, and
docs/protocols/implicit-groups.md.
"""
