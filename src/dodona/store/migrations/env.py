"""Run by Alembic, on the connection that `store.migrate` gives it."""

from alembic import context

context.configure(
    connection=context.config.attributes["connection"],
    render_as_batch=True,
    transactional_ddl=True,
)
context.run_migrations()
