"""The checks of `vinery doctor`: of the machine, the home, the settings, and the stores."""
