import django.db.models.deletion
from django.db import migrations, models


def delete_their_messages(apps, schema_editor):
    apps.get_model("accounts", "Delivery").objects.filter(alert=None).delete()


class Migration(migrations.Migration):
    dependencies = [("accounts", "0002_since_0_1")]

    operations = [
        migrations.RunPython(delete_their_messages, migrations.RunPython.noop, elidable=True),
        migrations.RemoveConstraint(model_name="delivery", name="one_subject_of_a_delivery"),
        migrations.RemoveConstraint(model_name="delivery", name="one_reminder_of_a_webhook"),
        migrations.RemoveConstraint(model_name="delivery", name="one_reminder_to_a_user"),
        migrations.RemoveField(model_name="delivery", name="reminder"),
        migrations.AlterField(
            model_name="delivery",
            name="alert",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.CASCADE,
                related_name="deliveries",
                to="accounts.alert",
            ),
        ),
        migrations.DeleteModel(name="KeyReminder"),
        migrations.RemoveField(model_name="dayrollup", name="energy_mj"),
        migrations.RemoveField(model_name="hourrollup", name="energy_mj"),
        migrations.RemoveField(model_name="minuterollup", name="energy_mj"),
        migrations.RemoveField(model_name="usagerecord", name="energy_mj"),
    ]
